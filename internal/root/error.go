package root

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// ErrInUse says that another process holds the root exclusively: maintenance, or a creation that takes long.
var ErrInUse = errors.New("the data root is locked by another process (orch root …, or one that is just creating it): try again when it is done")

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

// PairingError says that the root and the database are of different days: one of them was restored from a backup.
type PairingError struct {
	Path   string // the marker
	Marker int64  // generation in the marker
	Row    int64  // generation in the database, -1 when it doesn't know the root
}

func (e *PairingError) Error() string {
	switch {
	case e.Row < 0:
		return fmt.Sprintf("%s (generation %d) is unknown to the database, which seems to be restored from an older backup: restore the data root of the same day, or use a new directory",
			e.Path, e.Marker)
	case e.Marker < e.Row:
		return fmt.Sprintf("%s has generation %d, the database %d: the data root seems to be a copy or restored from an older backup; use the living one, or a new directory",
			e.Path, e.Marker, e.Row)
	default:
		return fmt.Sprintf("%s has generation %d, the database %d: the database seems to be restored from an older backup; restore the data root of the same day, or use a new directory",
			e.Path, e.Marker, e.Row)
	}
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

// NetworkError says that the root would lie on a network filesystem.
type NetworkError struct{ Path, Kind string }

func (e *NetworkError) Error() string {
	return fmt.Sprintf("%s is on a network filesystem (%s), where file locks and syncs don't hold what orch relies on: set ORCH_ROOT to a directory on a local disk", e.Path, e.Kind)
}

// OccupiedError says that the directory holds things that aren't orch's.
type OccupiedError struct{ Path, Entry string }

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s isn't a data root, and isn't empty (%s): set ORCH_ROOT to a new or an empty directory", e.Path, e.Entry)
}
