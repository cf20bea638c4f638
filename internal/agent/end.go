package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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

// end stops a run for a reason, waits until nothing of it is left, and notes it. An intent is forbidden instead.
func (r *Runs) end(ctx context.Context, run Run, why process.Why) error {
	for {
		over, err := r.tryEnd(ctx, run, why)
		if err != nil {
			return err
		}
		if over {
			break
		}
	}
	res, err := r.judge(ctx, run)
	if err != nil {
		return err
	}
	return r.noteEnd(ctx, run.ID, res)
}

func (r *Runs) tryEnd(ctx context.Context, run Run, why process.Why) (over bool, err error) {
	shim, err := process.OpenRun(r.dir(run.ID))
	if errors.Is(err, process.ErrNoRun) && run.State == StateRunning {
		return true, nil // it was seen alive, and its directory is lost
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
	waiting, cancel := context.WithTimeoutCause(ctx, againAfter, errAgain)
	defer cancel()
	switch _, err := shim.Wait(waiting); {
	case err == nil, errors.Is(err, process.ErrShimDead):
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
	runs, err := r.unfollowed(ctx)
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
	r.shims.wait(ctx)
	return errors.Join(failed...)
}

// shims are those that this process started and that may still be there: one outlives its run by a moment.
type shims struct {
	mu     sync.Mutex
	living []*process.Run
}

func (s *shims) add(shim *process.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living = slices.DeleteFunc(s.living, func(r *process.Run) bool {
		select {
		case <-r.ShimGone():
			return true
		default:
			return false
		}
	})
	s.living = append(s.living, shim)
}

// wait returns when the last one has gone, or at the end of ctx.
func (s *shims) wait(ctx context.Context) {
	s.mu.Lock()
	living := slices.Clone(s.living)
	s.mu.Unlock()
	for _, shim := range living {
		select {
		case <-shim.ShimGone():
		case <-ctx.Done():
			return
		}
	}
}

// Recover notes the ends that this root's runs came to while nobody looked, and ends what dead shims left. Living runs
// and intents stay for the jobs that come back to them.
func (r *Runs) Recover(ctx context.Context) error {
	runs, err := r.open(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs {
		if err := r.recoverOne(ctx, run); err != nil {
			failed = append(failed, fmt.Errorf("recover run %s: %w", run.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (r *Runs) recoverOne(ctx context.Context, run Run) error {
	shim, err := process.OpenRun(r.dir(run.ID))
	switch {
	case errors.Is(err, process.ErrNoRun) && run.State == StateIntended:
		return nil
	case errors.Is(err, process.ErrNoRun):
	case err != nil:
		return err
	default:
		st, err := shim.State()
		if err != nil {
			return err
		}
		if st.Status != process.StatusFinished && st.Status != process.StatusDead {
			return nil
		}
	}
	res, err := r.judge(ctx, run)
	if err != nil {
		return err
	}
	if err := r.noteEnd(ctx, run.ID, res); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "run had ended", slog.String("run_id", run.ID.String()), slog.Int64("task_id", run.TaskID),
		slog.String("why", string(res.Exit.Why)), slog.String("outcome", string(res.Outcome)))
	return nil
}

// judge says what a run that is over has come to. Whatever a dead shim left is ended before.
func (r *Runs) judge(ctx context.Context, run Run) (Result, error) {
	shim, err := process.OpenRun(r.dir(run.ID))
	if errors.Is(err, process.ErrNoRun) {
		if err := process.EndMarked(ctx, run.ID.String()); err != nil {
			return Result{}, err
		}
		return lost(run, "run directory is lost"), nil
	}
	if err != nil {
		return Result{}, err
	}
	exit, err := shim.Wait(ctx)
	if errors.Is(err, process.ErrShimDead) {
		exit, err = r.withoutRecord(run, shim)
	}
	if err != nil {
		return Result{}, err
	}
	return result(run, exit, shim.Log())
}

// withoutRecord is the end of a run whose shim died. Where the shim doesn't tell any more in which boot and pid
// namespace it was, the row does: its starter's.
func (r *Runs) withoutRecord(run Run, shim *process.Run) (process.Exit, error) {
	st, err := shim.State()
	if err != nil {
		return process.Exit{}, err
	}
	elsewhere := run.BootID != r.cfg.Self.BootID || run.PIDNamespace != r.cfg.Self.PIDNamespace
	if st.Interrupted || elsewhere && st.PIDs.Shim.IsZero() {
		return process.Exit{Why: process.WhyInterrupted, Error: "its machine or container was restarted"}, nil
	}
	return process.Exit{Why: process.WhyShimDead, Error: process.ErrShimDead.Error()}, nil
}

func lost(run Run, reason string) Result {
	exit := process.Exit{Why: process.WhyShimDead, Error: reason}
	return Result{RunID: run.ID, Exit: exit, Outcome: classify(exit, Report{})}
}

func result(run Run, exit process.Exit, log *process.Log) (Result, error) {
	tail, err := log.Tail(tailBytes)
	if err != nil {
		return Result{}, err
	}
	if exit.LogBytes == 0 {
		if exit.LogBytes, err = log.Size(); err != nil {
			return Result{}, err
		}
	}
	said := parseReport(tail)
	return Result{
		RunID: run.ID, Exit: exit, Outcome: classify(exit, said), Summary: said.Summary, Question: said.Question,
		CostUSD: said.CostUSD, LogTail: lastOf(tail),
	}, nil
}

// stored is the result of a run whose end was noted before: as the row has it, with what only the directory holds, as
// far as that can still be read.
func (r *Runs) stored(ctx context.Context, run Run) Result {
	res := Result{RunID: run.ID, Summary: run.Summary, Question: run.Question, CostUSD: run.CostUSD}
	shim, err := process.OpenRun(r.dir(run.ID))
	if err == nil {
		var tail []byte
		st, unread := shim.State()
		if st.Exit != nil {
			res.Exit = *st.Exit
		}
		tail, err = shim.Log().Tail(tailBytes)
		res.LogTail, err = lastOf(tail), errors.Join(unread, err)
	}
	if err != nil && !errors.Is(err, process.ErrNoRun) {
		r.log.WarnContext(ctx, "run directory can't be read", slog.String("run_id", run.ID.String()), slog.Any("error", err))
	}
	res.Exit.Code, res.Exit.LogBytes = run.ExitCode, run.LogBytes
	if run.Signal != nil {
		res.Exit.Signal = *run.Signal
	}
	if run.Ended != nil {
		res.Exit.Why = process.Why(*run.Ended)
	}
	if run.Outcome != nil {
		res.Outcome = *run.Outcome
	}
	return res
}
