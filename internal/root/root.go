package root

import (
	"context"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"orch/internal/root/layout"
)

// Config says what the root is bound for.
type Config struct {
	Testing bool          // root and database are for testing, and marked so
	Host    string        // name of this host, for people
	Wait    time.Duration // how long to wait for other processes, before ErrInUse or ErrBusy; zero: 5 s
	// Verify is called once with the lock held, before the database is looked at: for the check of the schema. Nil: none.
	Verify func(context.Context) error
	// Rebind lets Accept give a root of another database to this one, under a new id.
	Rebind bool

	idle time.Duration     // after which the database takes the start key from a starter that is stopped; zero: 30 s
	at   func(step string) // called at each step
}

// Root is a bound data root, locked against maintenance.
type Root struct {
	path   string
	marker marker
	lock   *lock
	closed func() error
}

// Path returns the root's absolute path.
func (r *Root) Path() string { return r.path }

// ID names this root for ever, wherever it is moved.
func (r *Root) ID() uuid.UUID { return r.marker.RootID }

// InstanceID names the database that the root belongs to.
func (r *Root) InstanceID() uuid.UUID { return r.marker.InstanceID }

// Others says whether any other process works in this root, those of other containers included.
func (r *Root) Others() bool { return r.lock.entered() }

// Deserted says whether no other process works in this root, those of other containers included. Unlike that there are no
// Others, it is never a guess.
func (r *Root) Deserted() bool { return r.lock.deserted() }

// Generation is the one that this process was given at its start.
func (r *Root) Generation() int64 { return r.marker.Generation }

// RunsDir holds a directory for each run; only orch can enter it.
func (r *Root) RunsDir() string { return filepath.Join(r.path, layout.Runs) }

// MirrorsDir holds orch's bare copies of the repositories.
func (r *Root) MirrorsDir() string { return filepath.Join(r.path, layout.Mirrors) }

// WorkspacesDir holds the agents' clones.
func (r *Root) WorkspacesDir() string { return filepath.Join(r.path, layout.Workspaces) }

// CheckoutsDir holds throw-away checkouts, for gates and merge tests.
func (r *Root) CheckoutsDir() string { return filepath.Join(r.path, layout.Checkouts) }

// HomesDir holds the agents' home directories.
func (r *Root) HomesDir() string { return filepath.Join(r.path, layout.Homes) }

// SocketPath is where the API listens for programs of this host.
func (r *Root) SocketPath() string { return SocketPath(r.path) }

// Close lets go of the lock. It may be called again.
func (r *Root) Close() error { return r.closed() }

// SocketPath returns where the API of the root at that path listens.
func SocketPath(root string) string { return filepath.Join(root, layout.Socket) }

// PGDir returns the directory of the private database.
func PGDir(root string) string { return filepath.Join(root, layout.PG) }
