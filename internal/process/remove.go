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
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove run: %w", ErrNoRun)
	}
	if err != nil {
		return fmt.Errorf("remove run: %w", err)
	}
	defer l.Release()
	st, done, err := r.record()
	if err == nil && !done {
		st, err = r.withoutShim(st)
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
	aside, err := os.MkdirTemp(filepath.Dir(r.dir), oldPrefix+"*")
	if err == nil {
		err = unix.Rename(r.dir, aside) // in place of an empty one, which os.Rename refuses
	}
	if err != nil {
		return fmt.Errorf("remove run: %w", err)
	}
	if err := tempdir.Remove(aside); err != nil {
		return fmt.Errorf("remove run: %w", err)
	}
	return nil
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
