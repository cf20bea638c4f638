package merge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// drive is one handler's work on one attempt, while it holds job and merge lease.
type drive struct {
	h       *Handler
	job     *queue.Lease
	task    Task
	def     Definition
	right   *lease.Right
	attempt attempt.Attempt

	defined  bool // def is the catalogue's, not only what was settled with an intent
	prepared bool // in this drive: what is in attempt was compared with the repository
	intended bool // in this drive: the intent was just written, no one can have landed it yet
	ended    bool // a transaction that ended the job was committed
}

// The points between steps at which a crash is tried.
const (
	pointEntered    = "entered"    // attempt open, lease held
	pointPreparing  = "preparing"  // step preparing is written
	pointReplayed   = "replayed"   // the land ref is set, not yet recorded
	pointTesting    = "testing"    // step testing is written
	pointTested     = "tested"     // the test is done, not yet recorded
	pointReady      = "ready"      // step ready is written
	pointIntended   = "intended"   // the intent is written
	pointLanding    = "landing"    // leases checked, the target not yet moved
	pointMoved      = "moved"      // the target has moved, not yet recorded
	pointLanded     = "landed"     // step landed is written
	pointRefreshed  = "refreshed"  // the checkout follows
	pointFinalised  = "finalised"  // all is written, clean-up not done
	pointPublishing = "publishing" // a ready branch is about to be published
	pointPublished  = "published"  // and was, not yet recorded
)

// run walks the steps with the lease being renewed, and gives the lease back however it went. It isn't a deferred
// call: when the goroutine dies, its lease stays to be found by others, as after a crash.
func (d *drive) run(ctx context.Context) error {
	bound, cancel := context.WithCancelCause(ctx)
	// The lease outlives a cancelled context: an intent that is written is brought to its end.
	keeping, enough := context.WithCancelCause(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		d.right.Keep(keeping, cancel)
	}()
	defer func() {
		enough(nil)
		<-kept
		cancel(nil)
	}()
	err := d.steps(bound)
	if err != nil {
		err = d.settle(bound, err)
	}
	d.giveBack(ctx, errors.Is(err, queue.ErrStopping))
	return err
}

// steps does one step after the other until the job has ended.
func (d *drive) steps(ctx context.Context) error {
	for !d.ended {
		if ctx.Err() != nil && !d.attempt.Step.Intended() {
			return context.Cause(ctx)
		}
		d.job.SetPhase(string(d.attempt.Step))
		if err := d.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// define asks the catalogue how to land, unless it was asked. A drive that found an open intent gets here only when
// nothing was landed and it begins anew.
func (d *drive) define(ctx context.Context) error {
	if d.defined {
		return nil
	}
	def, err := d.h.cfg.Catalog.Definition(ctx, d.task)
	if err != nil {
		return fmt.Errorf("find how to land %s: %w", d.task.Key, err)
	}
	if def.Method == "" {
		def.Method = MethodRebase
	}
	if d.right != nil && (def.Repo.Name != d.attempt.Repo || def.Target != d.attempt.Target) {
		return &queue.SnoozeError{WaitingFor: WaitingForLease} // this drive holds the lease of another target
	}
	d.def, d.defined = def, true
	return nil
}

func (d *drive) step(ctx context.Context) error {
	switch {
	case d.attempt.Step.Intended():
		// What may have happened in the repository is brought to its end, whoever asks for a stop or a cancel.
		// A lost lease is found by the fences.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.h.cfg.LandTimeout)
		defer cancel()
		if d.attempt.Step == attempt.StepLanded {
			return d.finish(ctx)
		}
		return d.land(ctx)
	case !d.prepared:
		if err := d.define(ctx); err != nil {
			return err
		}
		return d.prepare(ctx)
	case d.attempt.Step == attempt.StepTesting:
		return d.test(ctx)
	case d.def.Land && d.task.Land:
		return d.intend(ctx)
	default:
		return d.publish(ctx)
	}
}

// write makes next the attempt in one transaction that is fenced by job and merge lease; fn does what belongs to it.
func (d *drive) write(ctx context.Context, next attempt.Attempt, fn func(tx pgx.Tx) error) error {
	err := fenced(ctx, d.job, func(tx pgx.Tx) error {
		if err := d.right.FenceTx(ctx, tx); err != nil {
			return err
		}
		if fn != nil {
			if err := fn(tx); err != nil {
				return err
			}
		}
		return attempt.SaveTx(ctx, tx, d.job, next)
	})
	if err != nil {
		return fmt.Errorf("record merge step %s: %w", next.Step, err)
	}
	d.attempt = next
	return nil
}

// end is write for a transition whose fn ends the job: the merge lease is given back and the next in line woken in
// the same transaction.
func (d *drive) end(ctx context.Context, next attempt.Attempt, fn func(tx pgx.Tx) error) error {
	err := d.write(ctx, next, func(tx pgx.Tx) error {
		if err := d.right.ReleaseTx(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
	if err == nil {
		d.ended = true
	}
	return err
}

// settle decides what an error of a step means for the job.
func (d *drive) settle(ctx context.Context, err error) error {
	if !d.attempt.Step.Intended() {
		err = over(ctx, err)
	}
	// What is written now is written although the context may be over.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.h.cfg.LandTimeout)
	defer cancel()
	if !errors.Is(err, lease.ErrLost) {
		err = d.conclude(settling, err)
	}
	if errors.Is(err, lease.ErrLost) { // found out now, or by what was to be written
		err = d.lost(settling)
	}
	return err
}

// lost is the answer of a drive that may not write any more although it has its job: somebody has the merge lease, or
// closed the attempt because the task is cancelled, which the job may not have been told yet.
func (d *drive) lost(ctx context.Context) error {
	if !d.attempt.Step.Intended() {
		code := ""
		err := fenced(ctx, d.job, func(tx pgx.Tx) (err error) {
			code, err = d.h.cfg.Store.AbandonedAsTx(ctx, tx, d.attempt)
			return err
		})
		if err != nil {
			return err
		}
		if code == problem.Cancelled {
			return queue.ErrCancelRequested
		}
	}
	d.h.log.WarnContext(ctx, "merge lease lost", d.facts()...)
	return &queue.SnoozeError{After: d.h.cfg.WaitPoll, WaitingFor: WaitingForLease}
}

// conclude ends the job, or returns what the worker is to do with it.
func (d *drive) conclude(ctx context.Context, err error) error {
	var snooze *queue.SnoozeError
	var step *problem.StepError
	switch {
	case errors.Is(err, queue.ErrEnded): // a commit whose answer was lost, found out about later
		d.ended = true
		return nil
	case errors.Is(err, queue.ErrLeaseLost), errors.Is(err, queue.ErrStopping):
		return err
	case errors.Is(err, ErrSuperseded):
		next := d.attempt
		next.Step, next.LastError = attempt.StepReturned, problem.Superseded
		return d.end(ctx, next, func(tx pgx.Tx) error { return d.job.CompleteTx(ctx, tx) })
	case errors.Is(err, queue.ErrCancelRequested):
		next := d.attempt
		next.Step, next.LastError = attempt.StepReturned, problem.Cancelled
		// Whoever cancelled the task has closed the attempt already.
		if err := d.write(ctx, next, nil); err != nil && !errors.Is(err, lease.ErrLost) {
			return err
		}
		return queue.ErrCancelRequested
	case errors.As(err, &snooze):
		return d.later(ctx, d.attempt, snooze.WaitingFor, snooze.After)
	case errors.As(err, &step):
		return d.retry(ctx, step)
	}
	return err
}

// retry puts the attempt back for a while after a problem, or parks it when there were too many.
func (d *drive) retry(ctx context.Context, p *problem.StepError) error {
	next := d.attempt
	next.Tries++
	d.h.log.WarnContext(ctx, "landing has a problem", append(d.facts(),
		slog.String("code", p.Code), slog.Int("tries", next.Tries), slog.Any("error", p.Err))...)
	if next.Tries >= d.h.cfg.MaxTries {
		return d.park(ctx, next, p)
	}
	wait := d.h.cfg.RetryMin
	for i := 1; i < next.Tries && wait < d.h.cfg.RetryMax; i++ {
		wait *= 2
	}
	return d.later(ctx, next, p.Code, min(wait, d.h.cfg.RetryMax))
}

// later releases the job until after, out of the line, with the attempt given back and the merge lease free.
func (d *drive) later(ctx context.Context, next attempt.Attempt, code string, after time.Duration) error {
	next.LastError, next.Wait = code, after
	return d.end(ctx, next, func(tx pgx.Tx) error {
		return d.job.ReleaseTx(ctx, tx, queue.Release{After: after, WaitingFor: code})
	})
}

// park gives up for a person to look at it. A landing that only its checkout didn't follow is a landing, though, and one whose
// intent nobody could resolve stays as it is: what it was about to land may be on the target.
func (d *drive) park(ctx context.Context, next attempt.Attempt, p *problem.StepError) error {
	if next.Step == attempt.StepLanded {
		d.h.log.WarnContext(ctx, "landed, but the checkout of the target doesn't show it", d.facts()...)
		d.attempt = next
		return d.finalise(ctx, p.Code)
	}
	next.LastError = p.Code
	if next.Step.Intended() {
		next.Tries = 0 // for when the person has it tried again
	} else {
		next.Step = attempt.StepParked
	}
	return d.end(ctx, next, func(tx pgx.Tx) error {
		if err := d.h.cfg.Tasks.BlockTx(ctx, tx, d.job, d.task, p.Code, p.Reason()); err != nil {
			return err
		}
		return d.job.CompleteTx(ctx, tx)
	})
}

// giveBack frees the merge lease when a step's end didn't, conditional on its epoch alone: the handler does nothing
// more outside the database. It is best effort; a lease whose job doesn't run is free anyway. A stop wakes nobody: the
// job will be back in a moment, first in line, with a test that may be running all the while.
func (d *drive) giveBack(ctx context.Context, stopping bool) {
	if d.ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := d.right.GiveBack(ctx, !stopping); err != nil {
		d.h.log.DebugContext(ctx, "merge lease not given back", append(d.facts(), slog.Any("error", err))...)
	}
}

const giveBackTimeout = 5 * time.Second

func (d *drive) facts() []any {
	return []any{
		slog.String("repo", d.attempt.Repo), slog.String("target", d.attempt.Target),
		slog.String("branch", d.attempt.Branch), slog.String("task", d.task.Key),
		slog.Int64("job_id", d.job.Job().ID), slog.String("step", string(d.attempt.Step)),
	}
}
