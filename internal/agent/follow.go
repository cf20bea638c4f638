package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/agent/ledger"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/queue"
)

const (
	// phaseFollowing is the job's phase while its run lives.
	phaseFollowing = "following"
	// againAfter is how soon something that the database refused is tried again.
	againAfter = 2 * time.Second
	// endPatience is how long to wait for a run to end beyond its kill grace.
	endPatience = 60 * time.Second
	// notTakenPause is the time between looks at a run that isn't there yet.
	notTakenPause = 20 * time.Millisecond
)

var (
	errStartOver = errors.New("start_by has passed")
	errAgain     = errors.New("try again")
	// errStillThere means that a run didn't end within its grace and patience.
	errStillThere = errors.New("run is still there")
)

// follow waits for the end of a run that isn't known to have ended, and notes it.
func (a *attempt) follow(ctx context.Context, run Run, shim *process.Run) (Result, error) {
	following, leave := a.following(ctx)
	defer leave()
	shim, err := a.takeUp(following, run, shim)
	if err == nil && shim != nil {
		err = a.wait(following, run, shim)
	}
	if errors.Is(err, process.ErrUnknown) {
		if _, adrift, _ := a.finder().Open(run); !adrift.IsZero() { // its directory was lost a moment ago
			return a.follow(ctx, run, nil)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, queue.ErrCancelRequested):
		return Result{}, a.cancel(ctx, run)
	default:
		return Result{}, a.later(ctx, run, err)
	}
	res, err := a.ended(following, run)
	if err != nil {
		return Result{}, a.orCause(ctx, a.later(ctx, run, err))
	}
	return res, nil
}

// later turns the reasons for which a run can't be judged now into a wait of its job.
func (a *attempt) later(ctx context.Context, run Run, err error) error {
	waiting := "run_unknown"
	_, unseen := errors.AsType[*fs.PathError](err) // too many open files, a broken disk: it says nothing about the run
	switch {
	case errors.Is(err, process.ErrUnknown) || unseen:
	case errors.Is(err, process.ErrForeign):
		waiting = "run_elsewhere"
	case errors.Is(err, ErrMassDeath):
		return &queue.SnoozeError{After: elsewhereAfter, WaitingFor: "mass_death"} // Recover says so, once for all
	default:
		return err
	}
	a.log.WarnContext(ctx, "run can't be judged, tried again", slog.String("run_id", run.ID.String()), slog.Any("error", err))
	return &queue.SnoozeError{After: elsewhereAfter, WaitingFor: waiting}
}

// following is ctx, which is over at the worker's first stop signal too.
func (a *attempt) following(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-a.lease.Stopping():
			cancel(queue.ErrStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// takeUp waits until the run's shim has taken it, or settles that it never will: then the run has ended as never_started.
func (a *attempt) takeUp(ctx context.Context, run Run, shim *process.Run) (*process.Run, error) {
	giveUp := process.BootClock()
	if run.JobEpoch == a.lease.Job().Epoch {
		giveUp += int64(a.cfg.StartWithin)
	}
	for {
		left := time.Duration(giveUp - process.BootClock())
		shim, err := a.taken(ctx, run, shim, left)
		switch {
		case err == nil:
			return shim, nil
		case errors.Is(err, errAgain):
			continue
		case errors.Is(err, process.ErrNoRun) && run.State == StateRunning:
			return nil, nil //nolint:nilnil // the directory of a run that was seen alive is lost: ended deals with it
		case errors.Is(err, process.ErrNoRun), errors.Is(err, errStartOver), errors.Is(err, process.ErrNoShim):
		default:
			return nil, err
		}
		forbidden, err := process.Forbid(a.dir(run.ID))
		if err != nil {
			return nil, err
		}
		if forbidden {
			return nil, nil //nolint:nilnil // it has ended, without a shim
		}
	}
}

// taken looks for the shim for as long as it may still come.
func (a *attempt) taken(ctx context.Context, run Run, shim *process.Run, left time.Duration) (*process.Run, error) {
	if shim == nil {
		var adrift process.Identity
		var err error
		shim, adrift, err = a.finder().Open(run)
		if !adrift.IsZero() {
			return nil, a.followAdrift(ctx, run, adrift)
		}
		if errors.Is(err, process.ErrNoRun) && left > 0 && run.State == StateIntended {
			return nil, pause(ctx, notTakenPause)
		}
		if err != nil {
			return nil, err
		}
	}
	st, err := shim.State()
	if err != nil {
		return nil, err
	}
	if st.Status == process.StatusPending && left <= 0 {
		return nil, errStartOver
	}
	// One that is alive but hasn't named its program yet is about to.
	ctx, cancel := context.WithTimeoutCause(ctx, max(left, time.Second), errStartOver)
	defer cancel()
	if _, err := shim.WaitStarted(ctx); err != nil {
		return nil, err
	}
	return shim, nil
}

// followAdrift waits for the end of a living shim whose directory is gone, and from time to time asks for another look: the
// directory may be back, and at its end the shim leaves its record in a new one.
func (a *attempt) followAdrift(ctx context.Context, run Run, shim process.Identity) error {
	a.tellAdrift(ctx, run, shim)
	a.lease.SetPhase(phaseFollowing)
	_ = process.Wake(shim) // nobody else would end its run in time
	ctx, cancel := context.WithTimeoutCause(ctx, a.cfg.ListenEvery, errAgain)
	defer cancel()
	if err := process.WaitGone(ctx, shim); err != nil {
		return err
	}
	return errAgain
}

// pause waits and then asks for another look.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errAgain
	}
}

// wait waits for the end of a run that a shim has taken, and meanwhile gets its pids and its output noted.
func (a *attempt) wait(ctx context.Context, run Run, shim *process.Run) error {
	a.lease.SetPhase(phaseFollowing)
	defer a.listen(ctx, run, shim)()
	for noted, warned := false, false; ; {
		if !noted {
			err := a.noteStart(ctx, run, shim)
			if errors.Is(err, queue.ErrLeaseLost) || errors.Is(err, queue.ErrEnded) {
				return err
			}
			if err != nil && ctx.Err() == nil && !warned { // an outage is one line
				warned = true
				a.log.WarnContext(ctx, "run followed, its start not noted yet",
					slog.String("run_id", run.ID.String()), slog.String("error_code", db.Code(err)))
			}
			noted = err == nil
		}
		err := waitFor(ctx, shim, noted)
		switch {
		case errors.Is(err, errAgain):
		case errors.Is(err, process.ErrShimDead), errors.Is(err, process.ErrForeign):
			return nil
		default:
			return err
		}
	}
}

// waitFor waits for the end; not for ever while something is left to be noted.
func waitFor(ctx context.Context, shim *process.Run, noted bool) error {
	if !noted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, againAfter, errAgain)
		defer cancel()
	}
	_, err := shim.Wait(ctx)
	return err
}

func (a *attempt) noteStart(ctx context.Context, run Run, shim *process.Run) error {
	st, err := shim.State()
	if err != nil || st.PIDs.Agent.IsZero() {
		return err // it ended before there was a program
	}
	err = a.lease.Tx(ctx, func(tx pgx.Tx) error {
		if err := ledger.StartedTx(ctx, tx, run.ID, st.PIDs); err != nil {
			return err
		}
		return a.lease.ProcessTx(ctx, tx, st.PIDs.Agent.PID, st.PIDs.Agent.StartedAt)
	})
	if err != nil {
		return err
	}
	a.at("followed")
	a.log.InfoContext(ctx, "run followed", slog.String("run_id", run.ID.String()), slog.Int("pid", st.PIDs.Agent.PID),
		slog.Bool("resumed", run.JobEpoch != a.lease.Job().Epoch))
	return nil
}

// ended judges a run that is over and notes it, as often as the database needs to be asked.
func (a *attempt) ended(ctx context.Context, run Run) (Result, error) {
	a.at("exited")
	var res Result
	for {
		var err error
		if res, err = a.judge(ctx, run, grounds{}); err == nil {
			err = a.ledger.NoteEnd(ctx, run.ID, res.End)
		}
		if err == nil {
			break
		}
		if !db.Unreachable(err) {
			return Result{}, err
		}
		if err := pause(ctx, againAfter); !errors.Is(err, errAgain) {
			return Result{}, err
		}
	}
	a.at("noted")
	a.logEnd(ctx, "run ended", run, res)
	return res, nil
}

// cancel ends the run, waits for that and notes it. The run's own grace bounds it, not the lease: whoever asked for
// the cancellation is told only when nothing runs any more.
func (a *attempt) cancel(ctx context.Context, run Run) error {
	if err := a.endSoon(context.WithoutCancel(ctx), run, process.WhyCancelled); err != nil {
		return fmt.Errorf("cancel run: %w", err)
	}
	return queue.ErrCancelRequested
}
