package root

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// What goes away by itself, or by what somebody else does.
var (
	// ErrMissing says that there is no directory.
	ErrMissing = errors.New("there is no such directory: start `orch serve` on it once (or `orch root bind`, where ORCH_DATABASE_URL is set and only workers are to run), or set ORCH_ROOT to the data root that is in use")
	// ErrUnbound says that the root isn't bound to a database, or that its binding isn't finished.
	ErrUnbound = errors.New("it isn't bound to a database yet: start `orch serve` on it, or `orch root bind` where ORCH_DATABASE_URL is set and only workers are to run")
	// ErrSetupPending says that the database's first root is being made.
	ErrSetupPending = errors.New("the database's set-up isn't finished: `orch serve` does it when it binds its first data root")
	// ErrBusy says that another process is just starting on the root.
	ErrBusy = errors.New("another process is just starting on this data root: try again")
)

// ErrInUse says that another process holds the root in a way that excludes this one: maintenance or a creation that takes
// long; for maintenance, any process that works in the root.
var ErrInUse = errors.New("the data root is locked by another process (root_in_use)")

// Reason names what is waited for in one stable word; "" when waiting doesn't help, or isn't the data root's matter.
func Reason(err error) string {
	if _, ok := errors.AsType[*WriteError](err); ok {
		return "marker_write_failed"
	}
	for _, r := range []struct {
		err  error
		name string
	}{
		{ErrMissing, "root_missing"}, {ErrUnbound, "root_unbound"}, {ErrSetupPending, "setup_pending"}, {ErrBusy, "start_busy"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return ""
}

// WriteError says that the marker couldn't be written. What was there before is still there, or the next start mends it.
type WriteError struct {
	Path string // the marker
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("%s can't be written (%v): free space on its disk, or let this user write there", e.Path, e.Err)
}

// Unwrap returns what the system said.
func (e *WriteError) Unwrap() error { return e.Err }

// ForeignError says that the root belongs to another database.
type ForeignError struct {
	Path     string    // the marker
	Marker   uuid.UUID // instance that the root belongs to
	Database uuid.UUID // instance that was found
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s belongs to another database (instance %s, this one is %s): set ORCH_DATABASE_URL to the database that this data root was made with, or ORCH_ROOT to a new directory for this database",
		e.Path, e.Marker, e.Database)
}

// TestingError says that something for testing was mixed with something that isn't.
type TestingError struct {
	What   string // the data root or the database
	Marked bool   // it is for testing
}

func (e *TestingError) Error() string {
	if e.Marked {
		return e.What + " is marked for testing: start with --testing (ORCH_TESTING=true), or use another one"
	}
	return e.What + " isn't marked for testing: start without --testing (ORCH_TESTING), or use another one"
}

// PairingError says that the root and the database are of different days: one of them was copied, or restored from a backup.
type PairingError struct {
	Path   string // the marker
	Marker int64  // generation in the marker
	Row    int64  // generation in the database, -1 when it doesn't know the root
}

func (e *PairingError) Error() string {
	const accept = "; if that was done on purpose and nothing runs on the other copy, `orch root accept`"
	switch {
	case e.Row < 0:
		return fmt.Sprintf("%s (generation %d) is unknown to the database, which seems to be restored from an older backup: restore the data root of the same day, or use a new directory%s",
			e.Path, e.Marker, accept)
	case e.Marker < e.Row:
		return fmt.Sprintf("%s has generation %d, the database %d: the data root seems to be a copy or restored from an older backup; use the living one, or a new directory%s",
			e.Path, e.Marker, e.Row, accept)
	case e.Marker > e.Row:
		return fmt.Sprintf("%s has generation %d, the database %d: the database seems to be restored from an older backup; restore the data root of the same day, or use a new directory%s",
			e.Path, e.Marker, e.Row, accept)
	default:
		return fmt.Sprintf("%s and the database both have generation %d, but of different starts: one of them seems to be a copy that went on by itself; use the two that belong together, or a new directory%s",
			e.Path, e.Marker, accept)
	}
}

// LivingError says that a worker of the same root id beats, though nobody works in this directory: it is a copy of a root
// in use. A start would take the generation, and the jobs, from the original.
type LivingError struct {
	Host string
	PID  int
	Age  time.Duration // of its last beat
}

func (e *LivingError) Error() string {
	return fmt.Sprintf("a worker of this data root is alive elsewhere (host %s, pid %d, seen %s ago), so this directory is a copy of one in use: use that one, or a new directory. To go on here, stop that worker first (one that was killed counts as alive for %s, try again then)",
		e.Host, e.PID, e.Age.Round(time.Second), livingFor)
}

// LostError says that a root has no marker any more, though it was worked in.
type LostError struct {
	Path  string // where the marker should be
	Entry string // what was left by the work
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s is missing, but the data root was in use (%s): restore the marker from a backup, or set ORCH_ROOT to a new directory", e.Path, e.Entry)
}

// MarkerError says that the marker is there but can't be understood.
type MarkerError struct {
	Path string
	Err  error
}

func (e *MarkerError) Error() string {
	return fmt.Sprintf("%s can't be read as the marker of a data root (%v): restore it from a backup, or use a new directory", e.Path, e.Err)
}

// Unwrap returns what is wrong with it.
func (e *MarkerError) Unwrap() error { return e.Err }
