package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

// Outcome is how a lease ended its job.
type Outcome string

// The outcomes of a lease. Retried and Released jobs are queued again.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeRetried   Outcome = "retried"
	OutcomeReleased  Outcome = "released"
)

// outcome names what a transition did: of the queued ones the verb tells.
func outcome(state State, again Outcome) Outcome {
	if state.Terminal() {
		return Outcome(state)
	}
	return again
}

// Release says how a job is given back.
type Release struct {
	After      time.Duration // not before; zero = at once
	WaitingFor string        // what it waits for, "" when it doesn't
	Message    string        // the same for people, kept as the job's error with WaitingFor as its code; "" keeps what is there
	Recovery   bool          // counts as a recovery: its worker was at fault
}

// CompleteTx ends the job as succeeded when tx, one of the lease's Tx, commits.
func (l *Lease) CompleteTx(ctx context.Context, tx pgx.Tx) error {
	_, err := l.end(ctx, tx, "complete", OutcomeSucceeded, func(ft *fencedTx) (Job, error) {
		return move(ctx, ft, setSucceeded, held, l.args(nil))
	})
	return err
}

// CancelledTx ends the job as cancelled.
func (l *Lease) CancelledTx(ctx context.Context, tx pgx.Tx) error {
	_, err := l.end(ctx, tx, "cancel", OutcomeCancelled, func(ft *fencedTx) (Job, error) {
		return move(ctx, ft, setCancelled, held, l.args(nil))
	})
	return err
}

// FailTx ends the job as failed, whatever attempts are left.
func (l *Lease) FailTx(ctx context.Context, tx pgx.Tx, f Failure) error {
	_, err := l.end(ctx, tx, "fail", OutcomeFailed, func(ft *fencedTx) (Job, error) {
		return l.q.fail(ctx, ft, held, l.args(nil), f.Code, f.text())
	})
	return err
}

// RetryTx ends the attempt: the job is queued again after a back-off, or at the time the failure names, or failed when
// the failure is terminal or the attempts are used up, or cancelled when that was asked for. It returns which.
func (l *Lease) RetryTx(ctx context.Context, tx pgx.Tx, f Failure) (State, error) {
	job := l.Job()
	if f.Terminal || job.Attempt >= job.MaxAttempts {
		return l.failUnlessCancelled(ctx, tx, f)
	}
	after := f.After
	if after <= 0 {
		after = l.q.backoff(job.Attempt)
	}
	return l.end(ctx, tx, "retry", OutcomeRetried, func(ft *fencedTx) (Job, error) {
		return move(ctx, ft, setRetried, held, l.args(pgx.NamedArgs{
			"code": statement.Storable(f.Code), "message": statement.Storable(f.text()), "after": seconds(after),
		}))
	})
}

// failUnlessCancelled ends a job that has no attempt left: somebody who wanted it cancelled gets that.
func (l *Lease) failUnlessCancelled(ctx context.Context, tx pgx.Tx, f Failure) (State, error) {
	return l.end(ctx, tx, "fail", OutcomeFailed, func(ft *fencedTx) (Job, error) {
		job, err := move(ctx, ft, setCancelled, held+` and cancel_requested_at is not null and run_id is null`, l.args(nil))
		if !isNoRows(err) {
			return job, err
		}
		return l.q.fail(ctx, ft, held, l.args(nil), f.Code, f.text())
	})
}

// ReleaseTx gives the job back with its attempt. The epoch stays burnt: what is still under way for this lease is refused.
func (l *Lease) ReleaseTx(ctx context.Context, tx pgx.Tx, r Release) error {
	_, err := l.end(ctx, tx, "release", OutcomeReleased, func(ft *fencedTx) (Job, error) {
		ft.onCommit = append(ft.onCommit, func(*Job) { l.waits = r.WaitingFor })
		return move(ctx, ft, setReleased, held, l.args(r.args()))
	})
	return err
}

// RecoverTx is ReleaseTx for a job whose work was cut short by a death that isn't its own, and counts that: after
// MaxRecoveries of them in a row, as the row has it now, the job fails with crash_loop and this message, unless somebody
// wants it cancelled. It returns which.
func (l *Lease) RecoverTx(ctx context.Context, tx pgx.Tx, r Release, message string) (State, error) {
	r.Recovery = true
	return l.end(ctx, tx, "give back", OutcomeReleased, func(ft *fencedTx) (Job, error) {
		job, err := move(ctx, ft, setFailed, held+` and recoveries >= @most and cancel_requested_at is null`, l.args(pgx.NamedArgs{
			"most": MaxRecoveries, "code": CodeCrashLoop, "message": statement.Storable(message),
		}))
		switch {
		case err == nil:
			return job, l.q.failed(ctx, ft, job, CodeCrashLoop, statement.Storable(message))
		case !isNoRows(err):
			return job, err
		}
		return move(ctx, ft, setReleased, held, l.args(r.args()))
	})
}

// Release gives the job back in a transaction of its own, also under a lease that was marked lost: that is how a stop
// gets rid of jobs whose handlers don't return. ErrLeaseLost means that there was nothing to give back.
func (l *Lease) Release(ctx context.Context, r Release) error {
	ctx, cancel := l.q.bounded(ctx)
	defer cancel()
	job, err := move(ctx, l.q.pool, setReleased, held, l.args(r.args()))
	switch {
	case isNoRows(err):
		return fmt.Errorf("release job %d: %w", l.id, ErrLeaseLost)
	case err != nil:
		return fmt.Errorf("release job %d: %w", l.id, err)
	default:
		l.settle(outcome(job.State, OutcomeReleased))
		return nil
	}
}

func (r Release) args() pgx.NamedArgs {
	args := pgx.NamedArgs{"after": seconds(max(r.After, 0)), "waiting_for": nil, "waiting_message": nil, "recovered": 0}
	if r.WaitingFor != "" {
		args["waiting_for"] = statement.Storable(r.WaitingFor)
	}
	if r.Message != "" {
		args["waiting_message"] = statement.Storable(r.Message)
	}
	if r.Recovery {
		args["recovered"] = 1
	}
	return args
}

// wakeSQL tells the lanes that hold a due job which the concurrency key of an ended one kept back: it was announced when
// it couldn't be claimed yet. However many wait behind a key, one is looked at.
const wakeSQL = `
select pg_notify('` + ChannelJobs + `', lane) from unnest(@lanes::text[]) as l (lane)
where ` + db.NotifyRoom + ` and exists (select from unnest(@keys::text[]) as k (key) cross join lateral (
	select from jobs where state = 'queued' and lane = l.lane and concurrency_key = k.key
	order by concurrency_key, kind limit 1) waits)`

// wakeHeldBack tells the lanes of this worker what the job's end set free.
func (l *Lease) wakeHeldBack(ctx context.Context, ft *fencedTx, job Job) error {
	if job.ConcurrencyKey == nil {
		return nil
	}
	_, err := ft.Exec(ctx, wakeSQL, pgx.NamedArgs{
		"lanes": append(slices.Clone(l.worker.Lanes), job.Lane), "keys": []string{*job.ConcurrencyKey},
	})
	if err != nil {
		return fmt.Errorf("wake what the key %q held back: %w", *job.ConcurrencyKey, err)
	}
	return nil
}

// end runs a transition inside a Tx. The lease counts as ended only once that transaction has committed.
func (l *Lease) end(ctx context.Context, tx pgx.Tx, what string, again Outcome, transition func(*fencedTx) (Job, error)) (State, error) {
	ft, err := l.own(tx)
	if err != nil {
		return "", fmt.Errorf("%s job %d: %w", what, l.id, err)
	}
	if ft.end != "" {
		return "", fmt.Errorf("%s job %d: %w", what, l.id, ErrEnded)
	}
	job, err := transition(ft)
	if isNoRows(err) {
		err = ErrLeaseLost // can't be: the row is locked under our epoch
	}
	if err == nil {
		err = l.wakeHeldBack(ctx, ft, job)
	}
	if err != nil {
		return "", fmt.Errorf("%s job %d: %w", what, l.id, err)
	}
	ft.end = outcome(job.State, again)
	return job.State, nil
}

func (l *Lease) own(tx pgx.Tx) (*fencedTx, error) {
	ft, ok := tx.(*fencedTx)
	if !ok || ft.lease != l {
		return nil, ErrNotFenced
	}
	return ft, nil
}

// PinTx ties the job to a run of this worker's root: no other root claims the job any more.
func (l *Lease) PinTx(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error {
	return l.write(ctx, tx, "pin", `update jobs set run_id = @run, pinned_root = @root`,
		pgx.NamedArgs{"run": runID, "root": l.worker.RootID},
		func(job *Job) { job.RunID, job.PinnedRoot = &runID, &l.worker.RootID })
}

// UnpinTx lets go of the run, and names the worker's process as the job's again. The root stays: what the run left
// behind, a branch or a workspace, is there.
func (l *Lease) UnpinTx(ctx context.Context, tx pgx.Tx) error {
	return l.write(ctx, tx, "unpin", `update jobs set run_id = null, pid = @pid, pid_started_at = @started`,
		pgx.NamedArgs{"pid": l.worker.PID, "started": l.worker.PIDStartedAt},
		func(job *Job) { job.RunID = nil })
}

// PinRootTx ties the job to a root, whether or not it is this worker's: only that root claims the job from now on.
func (l *Lease) PinRootTx(ctx context.Context, tx pgx.Tx, root uuid.UUID) error {
	return l.write(ctx, tx, "pin", `update jobs set pinned_root = @root`, pgx.NamedArgs{"root": root},
		func(job *Job) { job.PinnedRoot = &root })
}

// FreeRootTx lets any root that serves the job's repository claim it, once this lease is over: what it needs is to be had
// there. A job with a run stays with the root of the run.
func (l *Lease) FreeRootTx(ctx context.Context, tx pgx.Tx) error {
	return l.write(ctx, tx, "free", `update jobs set pinned_root = case when run_id is not null then pinned_root end`, nil,
		func(job *Job) {
			if job.RunID == nil {
				job.PinnedRoot = nil
			}
		})
}

// CancelRequestedTx says whether somebody has asked for the job's end by now. Who asks locks the job's row, as tx has.
func (l *Lease) CancelRequestedTx(ctx context.Context, tx pgx.Tx) (requested bool, err error) {
	if _, err := l.own(tx); err != nil {
		return false, fmt.Errorf("look at job %d: %w", l.id, err)
	}
	err = tx.QueryRow(ctx, `select cancel_requested_at is not null from jobs where id = $1`, l.id).Scan(&requested)
	if err != nil {
		return false, fmt.Errorf("look at job %d: %w", l.id, err)
	}
	return requested, nil
}

// ProcessTx names the process that works for the job, e.g. an agent: startedAt in clock ticks after boot.
func (l *Lease) ProcessTx(ctx context.Context, tx pgx.Tx, pid int, startedAt int64) error {
	return l.write(ctx, tx, "name process of", `update jobs set pid = @pid, pid_started_at = @started`,
		pgx.NamedArgs{"pid": pid, "started": startedAt},
		func(job *Job) { job.PID, job.PIDStartedAt = &pid, &startedAt })
}

// ProgressTx keeps a JSON value as the job's progress in the transaction of what it tells of.
func (l *Lease) ProgressTx(ctx context.Context, tx pgx.Tx, progress any) error {
	raw, err := statement.StorableJSON(progress)
	if err != nil {
		return fmt.Errorf("write progress of job %d: %w", l.id, err)
	}
	return l.write(ctx, tx, "write progress of", `update jobs set progress = @progress`, pgx.NamedArgs{"progress": raw},
		func(job *Job) { job.Progress, l.progress = raw, raw }) // l.mu is held then
}

func (l *Lease) write(ctx context.Context, tx pgx.Tx, what, update string, args pgx.NamedArgs, committed func(*Job)) error {
	ft, err := l.own(tx)
	if err != nil {
		return fmt.Errorf("%s job %d: %w", what, l.id, err)
	}
	tag, err := ft.Exec(ctx, update+held, l.args(args))
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrEnded // the fence locked the row: only an end in this very transaction takes it away
	}
	if err != nil {
		return fmt.Errorf("%s job %d: %w", what, l.id, err)
	}
	ft.onCommit = append(ft.onCommit, committed)
	return nil
}

// backoff is the wait after the n-th attempt: doubled each time, capped, ± 25 % so that what failed together doesn't
// come back together.
func (q *Queue) backoff(attempt int) time.Duration {
	d := q.cfg.BackoffBase
	for n := 1; n < attempt && d < q.cfg.BackoffMax; n++ {
		d = min(2*d, q.cfg.BackoffMax)
	}
	jitter := 0.75 + rand.Float64()/2 //nolint:gosec // spreads load, guards nothing
	return min(time.Duration(float64(d)*jitter), q.cfg.BackoffMax)
}
