package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/procfs"
)

// wakePatience is what a shim that was stopped gets beyond its grace: it ends its program and records that.
const wakePatience = 10 * time.Second

var errAwake = errors.New("shim was woken and didn't end the run")

// Kill ends a run whose shim hasn't done what [Run.Stop] asked it for. A shim that is stopped is woken first and has
// the time that an ending takes. Otherwise it is killed, and what it leaves is ended: then the run has no record, and
// [Run.StopWanted] gives the reason.
func (r *Run) Kill(ctx context.Context, why Why) error {
	if err := r.Stop(ctx, why); err != nil {
		return err
	}
	st, err := r.State()
	if err != nil || st.Status != StatusAlive {
		return err
	}
	shim := st.PIDs.Shim
	if Probe(shim) == Unknown { // its pid is lost, or is another namespace's
		return fmt.Errorf("kill run: %w", ErrUnknown)
	}
	if r.wake(ctx, shim) {
		return nil
	}
	if err := signal(shim, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill run: %w", err)
	}
	if err := r.unheld(ctx, shim); err != nil {
		return fmt.Errorf("kill run: %w", err)
	}
	return r.EndRemains(ctx)
}

// wake lets a stopped shim go on and reports whether it has ended the run then.
func (r *Run) wake(ctx context.Context, shim Identity) bool {
	if st, err := procfs.Read(shim.PID); err != nil || !st.Stopped() {
		return false
	}
	if signal(shim, unix.SIGCONT) != nil {
		return false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.spec.Grace()+RemainsGrace+wakePatience, errAwake)
	defer cancel()
	_, err := r.Wait(ctx)
	return err == nil
}

// Wake lets a process of this pid namespace go on that was stopped, and does nothing about others: a shim that stands still
// bounds its run no more, and anybody of the same user can make it stand.
func Wake(id Identity) error {
	if id.IsZero() {
		return nil
	}
	if st, err := procfs.Read(id.PID); err != nil || st.Started != id.StartedAt || !st.Stopped() {
		return nil //nolint:nilerr // gone, or hidden
	}
	if self, err := here(); err != nil || !self.sees(id) {
		return err
	}
	return signal(id, unix.SIGCONT)
}

// unheld waits until a killed shim has let go of the run.
func (r *Run) unheld(ctx context.Context, shim Identity) error {
	if err := waitExit(ctx, shim); err != nil {
		return err
	}
	for pause := lookFirst; ; pause = min(2*pause, lookMost) { // the last of its threads closes its files a little later
		st, err := r.State()
		if err != nil || st.Status != StatusAlive {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// signal reaches a process of this pid namespace; one that is gone needs none.
func signal(id Identity, sig unix.Signal) error {
	err := procfs.Signal(procfs.Stat{PID: id.PID, Started: id.StartedAt}, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err //nolint:wrapcheck // says what
}
