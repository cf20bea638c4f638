package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/durable"
	"orch/internal/process/runlock"
	"orch/internal/process/runlog"
)

var (
	// ErrShimDead means that a run's shim died without a record. What it left may still be there: [Run.EndRemains].
	ErrShimDead = errors.New("shim died without a record")
	// ErrForeign means that a run's shim, of another pid namespace, died without a record. What it left may live on there.
	ErrForeign = errors.New("shim of another pid namespace died without a record")
	// ErrNoShim means that the shim ended without having taken the run; [Forbid] settles it.
	ErrNoShim = errors.New("shim did not take the run")
	// ErrUnknown means that this process can't examine the run's lock, or can't reach the run's shim.
	ErrUnknown = errors.New("run can't be judged from here")
	// ErrHeld means that somebody holds the lock of a run directory in a way that excludes the one asked for.
	ErrHeld = runlock.ErrHeld
	// ErrNoRun means that there is no such run directory.
	ErrNoRun = errors.New("no run directory")

	errNoLock = errors.New("its lock is gone")
)

// Status is what a run directory says about its run.
type Status string

// The states of a run, as doc.go tells them apart.
const (
	StatusPending  Status = "pending"
	StatusAlive    Status = "alive"
	StatusFinished Status = "finished"
	StatusDead     Status = "dead"
	// StatusForeign is a run whose shim has died in another pid namespace of this boot, where its program may live on. Who
	// knows that the namespace is gone may take it for dead.
	StatusForeign Status = "foreign"
	StatusUnknown Status = "unknown"
)

// State is a look at a run.
type State struct {
	Status Status
	// Exit is set when the run has finished.
	Exit *Exit
	PIDs PIDs
	// Interrupted is set when a run without a shim was of another boot, with which it has ended, or of another pid
	// namespace: if that has ended, so has the run.
	Interrupted bool
	// Adrift is set when the run directory is gone and the run's shim itself was seen to live: see [ShimOf].
	Adrift bool
	// Doubt is why the run is unknown.
	Doubt error
	// pidsLost and exitLost say that pid.json or exit.json is there but holds something else.
	pidsLost, exitLost bool
}

// taken reports whether a shim was here.
func (st State) taken() bool { return !st.PIDs.Shim.IsZero() || st.pidsLost || st.exitLost }

// over reports whether no shim adds anything any more.
func (st State) over() bool {
	return st.Status == StatusFinished || st.Status == StatusDead || st.Status == StatusForeign
}

const (
	lookFirst = 2 * time.Millisecond
	lookMost  = 500 * time.Millisecond
)

// Run is a run directory seen from outside.
type Run struct {
	dir  string
	spec Spec
	// shimGone is closed when a shim that this process started has been reaped; nil for others.
	shimGone <-chan struct{}
}

// OpenRun looks at an existing run directory; ErrNoRun when there is none. A spec that can't be decoded is as good as
// none: it doesn't keep others from judging the run.
func OpenRun(dir string) (*Run, error) {
	r := &Run{dir: dir}
	ok, err := durable.ReadJSON(dir, specFile, &r.spec)
	garbled := errors.Is(err, durable.ErrGarbled)
	if err != nil && !garbled {
		return nil, fmt.Errorf("open run: %w", err)
	}
	if ok || garbled {
		return r, nil
	}
	// One that was forbidden before it was made holds no spec, and one that somebody has emptied nothing but its record.
	if _, err := os.Stat(filepath.Join(dir, runlock.Name)); errors.Is(err, fs.ErrNotExist) {
		if recorded, err := Recorded(dir); err != nil || !recorded {
			return nil, errors.Join(fmt.Errorf("open run: %w", ErrNoRun), err)
		}
	}
	return r, nil
}

// Spec is what the run was made with.
func (r *Run) Spec() Spec { return r.spec }

// id is what the run's processes are marked with. Without a spec it is the directory's name.
func (r *Run) id() string {
	if r.spec.RunID != "" {
		return r.spec.RunID
	}
	return filepath.Base(r.dir)
}

// ShimGone is closed once a shim that this process started has been reaped; nil for a run that was only opened.
func (r *Run) ShimGone() <-chan struct{} { return r.shimGone }

// Log reads the run's output.
func (r *Run) Log() *Log {
	return runlog.Open(r.dir, func() bool {
		st, err := r.State()
		return err == nil && st.over()
	})
}

// State looks at the run once.
func (r *Run) State() (State, error) {
	st, done, err := r.record()
	if err != nil || done {
		return st, err
	}
	l, err := runlock.Try(r.dir, unix.LOCK_SH)
	if errors.Is(err, ErrHeld) {
		st, done, err = r.record() // pid.json may have come between
		if err == nil && !done {
			st.Status = StatusAlive
		}
		return st, err
	}
	if errors.Is(err, fs.ErrNotExist) && !st.PIDs.Shim.IsZero() {
		return r.withoutLock(st)
	}
	if err != nil {
		st.Status, st.Doubt = StatusUnknown, err
		return st, nil
	}
	// Look again, under the lock: the shim may have finished since, and one that comes now must not write pid.json
	// between this lock and this look, or it would seem dead.
	defer l.Release()
	st, done, err = r.record()
	if err != nil || done {
		return st, err
	}
	return r.withoutShim(st)
}

// withoutLock judges a run by its shim itself: somebody took the lock away, and nobody else can hold it any more.
func (r *Run) withoutLock(st State) (State, error) {
	switch Probe(st.PIDs.Shim) {
	case Alive:
		st.Status = StatusAlive
		return st, nil
	case Dead:
		st, done, err := r.record() // it may have left one just before
		if err != nil || done {
			return st, err
		}
		return r.withoutShim(st)
	default:
		st.Status, st.Doubt = StatusUnknown, errNoLock
		return st, nil
	}
}

// record reads what the shim left behind; done when it is a finished run.
func (r *Run) record() (State, bool, error) {
	var st State
	var pids PIDs
	named, pidsLost, err := readSound(r.dir, pidFile, &pids)
	if err != nil {
		return State{}, false, fmt.Errorf("look at run: %w", err)
	}
	if st.pidsLost = pidsLost; named {
		st.PIDs = pids
	}
	var exit Exit
	done, exitLost, err := readSound(r.dir, exitFile, &exit)
	if err != nil {
		return State{}, false, fmt.Errorf("look at run: %w", err)
	}
	if st.exitLost = exitLost; done {
		st.Status, st.Exit = StatusFinished, &exit
	}
	return st, done, nil
}

// readSound reads a file of the shim's. Lost means that something else is in its place.
func readSound[T interface{ sound() bool }](dir, name string, into *T) (ok, lost bool, err error) {
	ok, err = durable.ReadJSON(dir, name, into)
	if errors.Is(err, durable.ErrGarbled) || ok && !(*into).sound() {
		return false, true, nil
	}
	return ok, false, err
}

// withoutShim judges a run whose lock is free and which has no record of its end.
func (r *Run) withoutShim(st State) (State, error) {
	if !st.taken() {
		st.Status = StatusPending
		return st, nil
	}
	st.Status = StatusDead
	if st.PIDs.Shim.IsZero() {
		return st, nil // where it was can't be told
	}
	self, err := here()
	if err != nil {
		return State{}, fmt.Errorf("look at run: %w", err)
	}
	st.Interrupted = !self.sees(st.PIDs.Shim)
	if st.Interrupted && self.BootID == st.PIDs.Shim.BootID && !self.Outlived(st.PIDs.Shim) {
		st.Status = StatusForeign
	}
	return st, nil
}

// WaitStarted waits until the program runs or the run is over. ErrNoShim when the shim came to nothing.
func (r *Run) WaitStarted(ctx context.Context) (State, error) {
	for pause := lookFirst; ; pause = min(2*pause, lookMost) {
		gone := r.reaped() // before the look: a reaped shim has left all it ever will
		st, err := r.State()
		if err != nil {
			return State{}, err
		}
		switch {
		case st.Status == StatusAlive && st.PIDs.Agent.IsZero() && !st.pidsLost:
		case st.Status != StatusPending:
			return st, nil
		case gone:
			return st, ErrNoShim
		}
		if err := r.pause(ctx, pause); err != nil {
			return st, err
		}
	}
}

// Wait waits for the end, and ends nothing. The error is ErrShimDead or ErrForeign when the shim died, ErrUnknown when
// that can't be told. A run that is pending stays so until somebody starts or forbids it: bound the wait, or expect ErrNoShim from a
// shim of this process's own. The error is the cause of ctx when that ends the wait.
func (r *Run) Wait(ctx context.Context) (Exit, error) {
	watched := false
	for pause := lookFirst; ; pause = min(2*pause, lookMost) {
		gone := r.reaped()
		st, err := r.State()
		if err != nil {
			return Exit{}, err
		}
		switch st.Status {
		case StatusFinished:
			return *st.Exit, nil
		case StatusDead:
			return Exit{}, ErrShimDead
		case StatusForeign:
			return Exit{}, ErrForeign
		case StatusUnknown:
			return Exit{}, fmt.Errorf("%w: %w", ErrUnknown, st.Doubt)
		case StatusPending:
			if gone {
				return Exit{}, ErrNoShim
			}
		case StatusAlive:
			if !watched && waitExit(ctx, st.PIDs.Shim) == nil {
				watched = true // look at once, but don't spin if the lock is held for another reason
				continue
			}
		}
		if err := r.pause(ctx, pause); err != nil {
			return Exit{}, err
		}
	}
}

func (r *Run) reaped() bool {
	select {
	case <-r.shimGone:
		return true
	default:
		return false
	}
}

// pause waits a little, less when the shim of this process ends, and gives the cause of ctx.
func (r *Run) pause(ctx context.Context, d time.Duration) error {
	if r.reaped() {
		return sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.shimGone:
	case <-timer.C:
	}
	return nil
}

// Forbid gives up a run that no shim has taken: whatever shim comes later starts nothing. False when a shim was
// faster, or somebody is deciding this very moment: look again.
func (r *Run) Forbid() (bool, error) { return Forbid(r.dir) }

// Forbid is Run.Forbid for a run directory that need not exist: then it is made, so that a late Create fails.
func Forbid(dir string) (bool, error) {
	verdict := Exit{Why: WhyNeverStarted, FinishedAt: time.Now()}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) { // else spare the disk: it is asked again and again
		err = place(dir, func(tmp string) error { return durable.WriteJSON(tmp, exitFile, verdict) })
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrExists) {
			return false, fmt.Errorf("forbid run: %w", err)
		}
	}
	// Shared is enough to keep a shim out, and two that forbid write the same. Held exclusively, the lock would tell
	// everyone who looks meanwhile that a shim lives.
	l, err := runlock.Try(dir, unix.LOCK_SH)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err == nil {
		defer l.Release()
	}
	unlocked := err
	st, done, err := (&Run{dir: dir}).record()
	switch {
	case err != nil:
		return false, err
	case unlocked != nil && (!errors.Is(unlocked, fs.ErrNotExist) || !done && !st.taken()): // else decided even without it
		return false, fmt.Errorf("forbid run: %w", unlocked)
	case done:
		return st.Exit.Why == WhyNeverStarted, nil
	case st.taken():
		return false, nil
	}
	if err := durable.WriteJSON(dir, exitFile, verdict); err != nil {
		return false, fmt.Errorf("forbid run: %w", err)
	}
	return true, nil
}
