package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"
)

const (
	configName = "orch.yaml"
	socketName = "orch.sock"
)

// Config says what the root is bound for.
type Config struct {
	Testing bool          // root and database are for testing, and marked so
	Host    string        // name of this host, for people
	Wait    time.Duration // how long to wait for an exclusive lock to go; zero: 5 s
}

// Root is a bound data root, locked against maintenance.
type Root struct {
	path   string
	marker marker
	lock   *lock
	closed func() error
}

// Bind makes the root at path and its marker unless they are there, checks that root and database belong together, and
// returns it with root.lock held shared. The schema must be there.
func Bind(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (*Root, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("bind the data root: %w", err)
	}
	if err := Prepare(path); err != nil {
		return nil, err
	}
	l, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("bind the data root: %w", err)
	}
	if cfg.Wait == 0 {
		cfg.Wait = 5 * time.Second
	}
	b := binder{path: path, pool: pool, cfg: cfg, lock: l}
	m, err := b.bind(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bind the data root %s: %w", path, err), l.close())
	}
	return &Root{path: path, marker: m, lock: l, closed: sync.OnceValue(l.close)}, nil
}

// binder is one Bind.
type binder struct {
	path string
	pool *pgxpool.Pool
	cfg  Config
	lock *lock
}

// bind takes turns at the lock until it holds it shared and the marker is checked.
func (b *binder) bind(ctx context.Context) (marker, error) {
	deadline := time.NewTimer(b.cfg.Wait)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m, ok, err := b.turn(ctx)
		if ok || err != nil {
			return m, err
		}
		select {
		case <-ctx.Done():
			return marker{}, context.Cause(ctx)
		case <-deadline.C:
			return marker{}, ErrInUse
		case <-tick.C:
		}
	}
}

// turn is one attempt; false means that somebody else holds the lock.
func (b *binder) turn(ctx context.Context) (marker, bool, error) {
	_, err := readMarker(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		if ok, err := b.lock.try(unix.LOCK_EX); !ok || err != nil {
			return marker{}, false, err
		}
		// Whoever held the lock before us may have created it.
		if _, err = readMarker(b.path); errors.Is(err, fs.ErrNotExist) {
			err = b.create(ctx)
		}
		if err := errors.Join(err, b.lock.unlock()); err != nil {
			return marker{}, false, err
		}
	} else if err != nil {
		return marker{}, false, err
	}
	if ok, err := b.lock.try(unix.LOCK_SH); !ok || err != nil {
		return marker{}, false, err
	}
	m, err := readMarker(b.path) // maintenance may have replaced it
	if errors.Is(err, fs.ErrNotExist) {
		return marker{}, false, b.lock.unlock()
	}
	if err != nil {
		return marker{}, false, err
	}
	return m, true, b.check(ctx, m)
}

// Path returns the root's absolute path.
func (r *Root) Path() string { return r.path }

// ID names this root for ever, wherever it is moved.
func (r *Root) ID() uuid.UUID { return r.marker.RootID }

// InstanceID names the database that the root belongs to.
func (r *Root) InstanceID() uuid.UUID { return r.marker.InstanceID }

// Generation is the root's generation as of Bind.
func (r *Root) Generation() int64 { return r.marker.Generation }

// RunsDir holds a directory for each run; only orch can enter it.
func (r *Root) RunsDir() string { return filepath.Join(r.path, runsDir) }

// MirrorsDir holds orch's bare copies of the repositories.
func (r *Root) MirrorsDir() string { return filepath.Join(r.path, mirrorsDir) }

// WorkspacesDir holds the agents' clones.
func (r *Root) WorkspacesDir() string { return filepath.Join(r.path, workspacesDir) }

// CheckoutsDir holds throw-away checkouts, for gates and merge tests.
func (r *Root) CheckoutsDir() string { return filepath.Join(r.path, checkoutsDir) }

// HomesDir holds the agents' home directories.
func (r *Root) HomesDir() string { return filepath.Join(r.path, homesDir) }

// SocketPath is where the API listens for programs of this host.
func (r *Root) SocketPath() string { return SocketPath(r.path) }

// Close lets go of the lock. It may be called again.
func (r *Root) Close() error { return r.closed() }

// SocketPath returns where the API of the root at that path listens.
func SocketPath(root string) string { return filepath.Join(root, socketName) }

// ConfigPath returns where the root at that path keeps orch.yaml.
func ConfigPath(root string) string { return filepath.Join(root, configName) }

// PGDir returns the directory of the private database.
func PGDir(root string) string { return filepath.Join(root, pgDir) }
