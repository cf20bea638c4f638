package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/durable"
	"orch/internal/process/runlock"
	"orch/internal/process/tempdir"
)

// ErrUnfinished means that a run directory may still be needed: nobody has started or forbidden the run, or it may live
// where it can't be seen from here.
var ErrUnfinished = errors.New("run is not over")

const (
	newPrefix = ".new-" // run directories that are being made
	oldPrefix = ".old-" // and those that are being deleted
	// tidyAfter is the age at which nobody is making or deleting a directory any more.
	tidyAfter = time.Hour
	// shimErrTail is how much of a shim's own messages is worth showing.
	shimErrTail = 4 << 10
)

// Remove deletes the directory of a run that is over, for those who know that nobody needs its result any more.
// [ErrHeld] when its shim lives, or when somebody reads under its lock; [ErrUnfinished] when it isn't over. A directory
// either keeps its name and everything in it or loses both: what is left of a deletion that was cut short, [Tidy] deletes.
func (r *Run) Remove(ctx context.Context) error {
	l, err := runlock.Exclusively(r.dir)
	var st State
	switch {
	case err == nil:
		defer l.Release()
		var done bool
		if st, done, err = r.record(); err == nil && !done {
			st, err = r.withoutShim(st)
		}
	case errors.Is(err, fs.ErrNotExist) && r.there():
		st, err = r.State() // its lock was taken away
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("remove run: %w", ErrNoRun)
	default:
		return fmt.Errorf("remove run: %w", err)
	}
	if err != nil {
		return err
	}
	if !st.over() || st.Status == StatusForeign {
		return fmt.Errorf("remove run: %w", ErrUnfinished)
	}
	if st.Status == StatusDead {
		if err := r.endRemains(ctx, st); err != nil {
			return err
		}
	}
	return Discard(r.dir)
}

// Discard deletes a directory that is no run, or none any more.
func Discard(dir string) error {
	if err := tempdir.Discard(dir, oldPrefix); err != nil {
		return fmt.Errorf("remove run: %w", err)
	}
	return nil
}

// Settle leaves a record of the end of a foreign run, for those who know that its pid namespace is gone, or of a dead one that
// nobody will look at again, for those who have ended its remains. Without one the directory of a foreign run could be removed
// only in another boot.
func (r *Run) Settle(exit Exit) error {
	l, err := runlock.Exclusively(r.dir)
	if err != nil {
		return fmt.Errorf("settle run: %w", err)
	}
	defer l.Release()
	st, done, err := r.record()
	if err == nil && !done {
		st, err = r.withoutShim(st)
	}
	if err != nil || done {
		return err
	}
	if st.Status != StatusForeign && st.Status != StatusDead {
		return fmt.Errorf("settle run: %w", ErrUnfinished)
	}
	return durable.WriteJSON(r.dir, exitFile, exit) //nolint:wrapcheck // says what
}

func (r *Run) there() bool {
	_, err := os.Lstat(r.dir)
	return err == nil
}

// Tidy deletes what was left in a directory of run directories by those who were killed while they made or deleted one.
func Tidy(runs string) error {
	if err := tempdir.RemoveOld(runs, tidyAfter, newPrefix, oldPrefix); err != nil {
		return fmt.Errorf("tidy run directories: %w", err)
	}
	return nil
}

// ShimErr is the end of what the shim said of its own troubles; normally nothing.
func (r *Run) ShimErr() string {
	f, err := os.OpenFile(filepath.Join(r.dir, errFile), os.O_RDONLY|unix.O_NONBLOCK, 0) // whatever it is, don't wait for it
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-shimErrTail, 0), shimErrTail))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(raw)), "\uFFFD")
}
