package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"orch/internal/process/durable"
	"orch/internal/process/runlock"
	"orch/internal/process/tempdir"
	"orch/internal/transcript"
)

// Hold is a run directory in the hands of its shim: as long as it is held, nobody else decides about the run.
type Hold struct {
	dir  string
	lock *runlock.Lock
	// rooms are taken for files that must be written.
	rooms map[string][]*durable.Room
}

// TakeHold waits for those who look or forbid to go, and takes the run. [ErrHeld] when another shim has it, or when they
// stay for longer than anybody should.
func TakeHold(dir string) (*Hold, error) {
	l, err := runlock.Exclusively(dir)
	if err != nil {
		return nil, err
	}
	return &Hold{dir: dir, lock: l, rooms: map[string][]*durable.Room{}}, nil
}

// Release lets the run go, and the room that wasn't needed.
func (h *Hold) Release() {
	h.dropRooms()
	h.lock.Release()
}

func (h *Hold) dropRooms() {
	for _, rooms := range h.rooms {
		for _, room := range rooms {
			room.Drop()
		}
	}
	clear(h.rooms)
}

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
	if ok, err := durable.ReadJSON(h.dir, specFile, &spec); err != nil || !ok {
		return Spec{}, errors.Join(err, fmt.Errorf("start program: %w", ErrNoRun))
	}
	return spec, spec.validate()
}

// StopWanted gives the reason for which the run is to end, if somebody has asked for it; interrupted if the reason
// can't be read.
func (h *Hold) StopWanted() (Why, bool) {
	return stopWanted(h.dir)
}

// Rooms that are enough for what a shim writes.
const (
	pidRoom  = 4 << 10
	exitRoom = 16 << 10
	saidRoom = 64 << 10
)

// Reserve takes the room on the disk for all that must be written about the run, before anything is started: then a full
// disk neither ends a program nor hides how it ended.
func (h *Hold) Reserve() error {
	for _, want := range []struct {
		name string
		size int64
	}{{pidFile, pidRoom}, {pidFile, pidRoom}, {saidFile, saidRoom}, {exitFile, exitRoom}} { // pid.json is written twice
		room, err := durable.Reserve(h.dir, want.size)
		if err != nil {
			h.dropRooms() // a word of it may fit there
			return err
		}
		h.rooms[want.name] = append(h.rooms[want.name], room)
	}
	return nil
}

// WritePIDs makes known which processes the run has.
func (h *Hold) WritePIDs(pids PIDs) error { return h.write(pidFile, pids) }

// WriteExit finishes the run: after it returns nil, a power cut can't take the record back.
func (h *Hold) WriteExit(exit Exit) error { return h.write(exitFile, exit) }

// write uses the room that was taken for the file. Once that is used up, or by a failure, there may be room elsewhere.
func (h *Hold) write(name string, v any) error {
	if info, err := os.Lstat(filepath.Join(h.dir, name)); err == nil && info.IsDir() {
		_ = os.RemoveAll(filepath.Join(h.dir, name)) // no file could have its name
	}
	rooms := h.rooms[name]
	if len(rooms) == 0 {
		return durable.WriteJSON(h.dir, name, v)
	}
	h.rooms[name] = rooms[1:]
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := rooms[0].Become(filepath.Join(h.dir, name), append(raw, '\n')); err != nil {
		return durable.WriteJSON(h.dir, name, v)
	}
	return nil
}

// Gone reports whether the run directory isn't there any more: then nobody is left to write for.
func (h *Hold) Gone() bool {
	_, err := os.Lstat(h.dir)
	return errors.Is(err, fs.ErrNotExist)
}

// Restore leaves the record of a run whose directory is gone in a new one of the same name, and with it what it was made with and
// what it said: its output is lost with the old one, but not how it ended. [ErrExists] when something has the name by now.
func (h *Hold) Restore(spec Spec, pids PIDs, said transcript.Said, exit Exit) error {
	return place(h.dir, func(tmp string) error {
		return errors.Join(
			durable.WriteJSON(tmp, specFile, spec), durable.WriteJSON(tmp, pidFile, pids), durable.WriteJSON(tmp, saidFile, said),
			durable.WriteJSON(tmp, exitFile, exit))
	})
}

// EmptyTemp deletes what the program left in its temporary directory.
func (h *Hold) EmptyTemp() error { return tempdir.Empty(filepath.Join(h.dir, tmpDir)) }
