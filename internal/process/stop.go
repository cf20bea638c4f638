package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Stop asks the shim to end the run for a reason; the first reason given stands. It doesn't wait: Wait does. When the
// shim is dead, Stop ends what is left of the run itself, of a foreign one as far as it can be seen from here, and where
// the shim's pid is lost it ends the program. A pending run ends when its shim comes.
func (r *Run) Stop(ctx context.Context, why Why) error {
	st, err := r.State()
	if err != nil {
		return err
	}
	if st.Status == StatusFinished {
		return nil
	}
	if err := writeStop(r.dir, why); err != nil {
		if st.Status == StatusAlive && !st.PIDs.Shim.IsZero() {
			return stopShim(st.PIDs.Shim) // without the reason
		}
		return err
	}
	// Only now: a shim that wrote pid.json before this look is signalled, and one that does it later sees the file.
	st, err = r.State()
	if err != nil {
		return err
	}
	switch st.Status {
	case StatusUnknown:
		return fmt.Errorf("stop run: %w: %w", ErrUnknown, st.Doubt)
	case StatusDead, StatusForeign:
		return r.endRemains(ctx, st)
	case StatusAlive:
		switch {
		case st.pidsLost:
			return r.endMarked(ctx)
		case st.PIDs.Shim.IsZero():
			return nil
		}
		return stopShim(st.PIDs.Shim)
	default:
		return nil
	}
}

func stopShim(shim Identity) error {
	switch Probe(shim) {
	case Unknown:
		return ErrUnknown
	case Dead:
		return nil
	default:
	}
	if err := signal(shim, unix.SIGTERM); err != nil {
		return fmt.Errorf("stop run: %w", err)
	}
	return nil
}

// writeStop leaves the reason; one that is there already stays. It is the target of a link that leads nowhere: that is there
// at once or not at all, and needs no room on a disk that is full.
func writeStop(dir string, why Why) error {
	err := os.Symlink(string(why), filepath.Join(dir, stopFile))
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) {
		err = ErrNoRun
	}
	return fmt.Errorf("stop run: %w", err)
}

// StopWanted gives the reason for which the run was asked to end, if it was; interrupted if the reason can't be read.
func (r *Run) StopWanted() (Why, bool) { return stopWanted(r.dir) }

func stopWanted(dir string) (Why, bool) {
	why, err := os.Readlink(filepath.Join(dir, stopFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if why := Why(why); err == nil && why.recorded() {
		return why, true
	}
	return WhyInterrupted, true
}
