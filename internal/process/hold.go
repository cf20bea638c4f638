package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Hold is a run directory in the hands of its shim: as long as it is held, nobody else decides about the run.
type Hold struct {
	dir  string
	lock *lock
}

// TakeHold waits for those who look or forbid to go, and takes the run. [ErrHeld] when another shim has it, or when they
// stay for longer than anybody should.
func TakeHold(dir string) (*Hold, error) {
	l, err := lockExclusively(dir)
	if err != nil {
		return nil, err
	}
	return &Hold{dir: dir, lock: l}, nil
}

// Release lets the run go.
func (h *Hold) Release() { h.lock.release() }

// Decided reports whether the run has ended, was forbidden, or was taken by a shim before. A record that can't be
// read may be that of one.
func (h *Hold) Decided() (bool, error) {
	before, done, err := (&Run{dir: h.dir}).record()
	if err != nil {
		return false, err
	}
	return done || before.taken(), nil
}

// Spec reads what is to be run; [ErrNoRun] when nothing is, [ErrBadSpec] when it can't be.
func (h *Hold) Spec() (Spec, error) {
	var spec Spec
	if ok, err := readJSON(h.dir, specFile, &spec); err != nil || !ok {
		return Spec{}, errors.Join(err, fmt.Errorf("start program: %w", ErrNoRun))
	}
	return spec, spec.validate()
}

// WritePIDs makes known which processes the run has.
func (h *Hold) WritePIDs(pids PIDs) error { return writeJSON(h.dir, pidFile, pids) }

// StopWanted gives the reason for which the run is to end, if somebody has asked for it; interrupted if the reason
// can't be read.
func (h *Hold) StopWanted() (Why, bool) {
	raw, err := os.ReadFile(filepath.Join(h.dir, stopFile))
	if err != nil {
		return "", false
	}
	if why := Why(raw); why.recorded() {
		return why, true
	}
	return WhyInterrupted, true
}

// WriteExit finishes the run: after it returns nil, a power cut can't take the record back.
func (h *Hold) WriteExit(exit Exit) error { return writeJSON(h.dir, exitFile, exit) }
