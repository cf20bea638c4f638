package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"orch/internal/process"
)

// endSoon is end, for no longer than the run's own grace allows.
func (r *Runs) endSoon(ctx context.Context, run Run, why process.Why) error {
	ctx, stop := context.WithTimeoutCause(ctx, r.cfg.KillGrace+endPatience, errStillThere)
	defer stop()
	if err := r.end(ctx, run, why); err != nil {
		return fmt.Errorf("end run %s: %w", run.ID, err)
	}
	return nil
}

// End ends a run of this root whose end isn't noted: its shim, its group and whatever carries its mark; and notes it. One that
// had ended by itself keeps its own outcome. It takes as long as the run's grace and some patience at most. ErrElsewhere for
// a run of another root, process.ErrForeign and process.ErrUnknown for one that can't be ended from here.
func (r *Runs) End(ctx context.Context, id uuid.UUID, why process.Why) error {
	run, err := r.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case run.RootID != r.cfg.RootID:
		return ErrElsewhere
	case run.State == StateFinished:
		return nil
	}
	return r.endSoon(ctx, run, why)
}

// end stops a run for a reason, waits until nothing of it is left, and notes it. An intent is forbidden instead. A shim that
// doesn't end its run in time doesn't work any more: it is killed, and the run keeps the reason.
func (r *Runs) end(ctx context.Context, run Run, why process.Why) error {
	killAt := process.BootClock() + int64(r.cfg.KillGrace+r.cfg.KillPatience)
	on := grounds{asked: true}
	for {
		over, err := r.tryEnd(ctx, run, why, &on)
		if err == nil && !over && on.adrift != "" && process.BootClock() >= killAt {
			break // what is left of it is ended below
		}
		if err == nil && !over && on.killed == "" && process.BootClock() >= killAt {
			err = r.kill(ctx, run, why) // looked at again: it may have written its record just before
			on.killed = why
		}
		if err != nil {
			return err
		}
		if over {
			break
		}
	}
	res, err := r.judge(ctx, run, on)
	if err != nil {
		return err
	}
	return r.ledger.NoteEnd(ctx, run.ID, res.End)
}

func (r *Runs) kill(ctx context.Context, run Run, why process.Why) error {
	shim, err := process.OpenRun(r.dir(run.ID))
	if err != nil {
		return err
	}
	r.log.WarnContext(ctx, "shim doesn't end its run, killed", slog.String("run_id", run.ID.String()), slog.String("why", string(why)))
	return shim.Kill(ctx, why)
}

func (r *Runs) tryEnd(ctx context.Context, run Run, why process.Why, on *grounds) (over bool, err error) {
	shim, adrift, err := r.finder().Open(run)
	if !adrift.IsZero() {
		on.adrift = why
		return process.StopAdrift(ctx, adrift, min(againAfter, r.cfg.KillPatience))
	}
	if errors.Is(err, process.ErrNoRun) && (run.State == StateRunning || on.adrift != "") {
		return true, nil // it was seen alive, and its directory is lost
	}
	if errors.Is(err, process.ErrUnknown) {
		return false, err // its directory is lost, and its shim may live: to forbid it would say that it never started
	}
	if forbidden, err := process.Forbid(r.dir(run.ID)); err != nil || forbidden {
		return forbidden, err
	}
	if errors.Is(err, process.ErrNoRun) {
		return false, nil // just made
	}
	if err != nil {
		return false, err
	}
	if err := shim.Stop(ctx, why); err != nil {
		return false, err
	}
	// Not for ever: a shim that dies before it has named itself leaves something to forbid.
	waiting, cancel := context.WithTimeoutCause(ctx, min(againAfter, r.cfg.KillPatience), errAgain)
	defer cancel()
	switch _, err := shim.Wait(waiting); {
	case err == nil, errors.Is(err, process.ErrShimDead), errors.Is(err, process.ErrForeign):
		return true, nil
	case errors.Is(err, errAgain), errors.Is(err, process.ErrNoShim):
		return false, nil
	default:
		return false, err
	}
}

// InterruptAll ends the living runs of this root, for a stop after which none could live on, and waits until the shims
// that this process started have gone too. The runs' attempts are given back. Runs that another process of the root
// follows aren't this one's to end.
func (r *Runs) InterruptAll(ctx context.Context) error {
	runs, err := r.Unfollowed(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs { // all at once get their SIGTERM before anyone is waited for
		if shim, err := process.OpenRun(r.dir(run.ID)); err == nil {
			failed = append(failed, shim.Stop(ctx, process.WhyInterrupted))
		}
	}
	for _, run := range runs {
		if err := r.end(ctx, run, process.WhyInterrupted); err != nil {
			failed = append(failed, fmt.Errorf("interrupt run %s: %w", run.ID, err))
		}
	}
	r.shims.Wait(ctx)
	return errors.Join(failed...)
}
