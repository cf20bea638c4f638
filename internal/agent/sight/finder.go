package sight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"orch/internal/agent/ledger"
	"orch/internal/process"
)

// Finder looks at the run directories of one data root.
type Finder struct {
	Ledger ledger.Reader
	// Dir holds the run directories of Root, Self is who looks.
	Dir  string
	Root uuid.UUID
	Self process.Identity
}

// Path is the directory of a run.
func (f Finder) Path(id uuid.UUID) string { return filepath.Join(f.Dir, id.String()) }

// Starter is where a run was begun, as far as its row tells.
func Starter(run ledger.Run) process.Identity {
	return process.Identity{Host: run.Host, BootID: run.BootID, PIDNamespace: run.PIDNamespace}
}

// Here says whether a process was of this boot and pid namespace.
func (f Finder) Here(at process.Identity) bool {
	return at.BootID == f.Self.BootID && at.PIDNamespace == f.Self.PIDNamespace
}

// Of is what a run of this root looks like whose end isn't noted; unknown when its directory can't be read.
func (f Finder) Of(run ledger.Run) process.State {
	st, err := f.Look(run)
	if err != nil {
		return process.State{Status: process.StatusUnknown, Doubt: err}
	}
	return st
}

// Look is Of with the error. One look at a directory that is gone says nothing about the run: it lives as long as its shim does,
// which is found without it. A run that was seen alive and has lost both is dead, or foreign; with all directories gone nothing
// can be said.
func (f Finder) Look(run ledger.Run) (process.State, error) {
	shim, adrift, err := f.Open(run)
	switch {
	case !adrift.IsZero():
		return process.State{Status: process.StatusAlive, PIDs: process.PIDs{Shim: adrift}, Adrift: true}, nil
	case errors.Is(err, process.ErrNoRun) && run.State == ledger.StateIntended:
		return process.State{Status: process.StatusPending}, nil
	case errors.Is(err, process.ErrNoRun):
		if err := f.There(); err != nil {
			return process.State{}, err
		}
		return f.lost(Starter(run)), nil
	case err != nil:
		return process.State{}, err
	}
	return shim.State() //nolint:wrapcheck // it says what it is
}

// Open opens the directory of a run. Where there is none, adrift is the run's shim if it lives here all the same, and the error
// is nil then; else it is process.ErrNoRun.
func (f Finder) Open(run ledger.Run) (dir *process.Run, adrift process.Identity, err error) {
	path := f.Path(run.ID)
	dir, err = process.OpenRun(path)
	if !errors.Is(err, process.ErrNoRun) || !f.Here(Starter(run)) {
		return dir, process.Identity{}, err //nolint:wrapcheck // it says what it is
	}
	noted := 0
	if run.ShimPID != nil {
		noted = *run.ShimPID
	}
	if adrift, err = process.ShimOf(path, noted); err != nil || !adrift.IsZero() {
		return nil, adrift, err //nolint:wrapcheck // as above
	}
	dir, err = process.OpenRun(path)    // it may have left its record in a new one just before
	return dir, process.Identity{}, err //nolint:wrapcheck // as above
}

// There is nil when there is a place for run directories: a disk that is away has lost no run.
func (f Finder) There() error {
	if _, err := os.Stat(f.Dir); err != nil {
		return fmt.Errorf("look for run directories: %w", err)
	}
	return nil
}

// lost is a run that was seen alive at some place and has no directory any more.
func (f Finder) lost(at process.Identity) process.State {
	st := process.State{Status: process.StatusDead, Interrupted: !f.Here(at)}
	if st.Interrupted && at.BootID == f.Self.BootID && !f.Self.Outlived(at) {
		st.Status = process.StatusForeign // it may go on there
	}
	return st
}

// Unrecorded lists the run directories without a record of the end.
func (f Finder) Unrecorded() ([]uuid.UUID, error) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("list run directories: %w", err)
	}
	var open []uuid.UUID
	var failed []error // one that can't be looked into hides no other
	for _, entry := range entries {
		id, err := uuid.Parse(entry.Name())
		if err != nil {
			continue
		}
		recorded, err := process.Recorded(f.Path(id))
		failed = append(failed, err)
		if err == nil && !recorded {
			open = append(open, id)
		}
	}
	return open, errors.Join(failed...)
}
