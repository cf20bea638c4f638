package merge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/git"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
	"orch/internal/queue"
	"orch/internal/queue/pause"
)

// drive is one handler's work on one attempt, while it holds job and merge lease.
type drive struct {
	h       *Handler
	job     *queue.Lease
	task    Task
	def     Definition
	right   *lease.Right
	attempt attempt.Attempt

	mates []mate // whose work is tested and landed together with the attempt's; none when it is alone

	offered  bool           // the head was brought into the repository just now
	defined  bool           // def is the catalogue's, not only what was settled with an intent
	prepared bool           // in this drive: what is in attempt was compared with the repository
	intended bool           // in this drive: the intent was just written, no one can have landed it yet
	ended    bool           // a transaction that ended the job was committed
	barred   map[int64]bool // attempts that couldn't be in a group with this one
}

// point is a moment between steps at which a crash is tried.
type point string

const (
	pointOffered      point = "offered"       // the head is in the repository, not yet recorded
	pointEntered      point = "entered"       // attempt open, lease held
	pointPreparing    point = "preparing"     // step preparing is written
	pointClaimed      point = "claimed"       // the target is claimed in the repository
	pointReplayed     point = "replayed"      // the land ref is set, not yet recorded
	pointGrouped      point = "grouped"       // those of the mates are, too
	pointTesting      point = "testing"       // step testing is written
	pointTested       point = "tested"        // the test is done, not yet recorded
	pointReady        point = "ready"         // step ready is written
	pointHalved       point = "halved"        // a red group is written to be halved
	pointIntended     point = "intended"      // the intent is written
	pointLanding      point = "landing"       // leases checked, the target not yet moved
	pointMoved        point = "moved"         // the target has moved, not yet recorded
	pointLanded       point = "landed"        // step landed is written
	pointRefreshed    point = "refreshed"     // the checkout follows
	pointRefreshNoted point = "refresh_noted" // that is written, for the mates
	pointFinalised    point = "finalised"     // all is written, clean-up not done
	pointPublishing   point = "publishing"    // a ready branch is about to be published
	pointPublished    point = "published"     // and was, not yet recorded
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
		err := d.step(ctx)
		if errors.Is(err, attempt.ErrChanged) && !d.attempt.Step.Intended() {
			d.prepared, d.mates, err = false, nil, nil // a mate has left: who is still there is a group of its own
		}
		if err != nil {
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
		def.Method = string(git.Rebase)
	}
	if d.right != nil && (def.Repo.Name != d.attempt.Repo || def.Target != d.attempt.Target) {
		return &queue.SnoozeError{WaitingFor: WaitingForLease} // this drive holds the lease of another target
	}
	d.def, d.defined = def, true
	return nil
}

func (d *drive) step(ctx context.Context) error {
	if d.attempt.Step.Intended() {
		// What may have happened in the repository is brought to its end, whoever asks for a stop or a cancel.
		// A lost lease is found by the fences.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.h.cfg.LandTimeout)
		defer cancel()
		if d.attempt.Step == attempt.StepLanded {
			return d.finish(ctx)
		}
		return d.land(ctx)
	}
	if rests, err := d.rests(ctx); err != nil || rests {
		return err
	}
	switch {
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

// rests gives lease and job back while the repository is paused. What was tested stays tested. A run that lives is followed to
// its end first.
func (d *drive) rests(ctx context.Context) (bool, error) {
	if d.h.cfg.Paused == nil || d.job.Job().RunID != nil {
		return false, nil
	}
	paused, err := d.h.cfg.Paused(ctx, d.attempt.Repo)
	if err != nil || !paused {
		return false, err
	}
	next := d.attempt
	next.LastError, next.Wait = "", 0
	return true, d.end(ctx, next, func(tx pgx.Tx) error {
		return d.job.ReleaseTx(ctx, tx, queue.Release{WaitingFor: pause.WaitingForRepo(next.Repo)})
	})
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
		if err := attempt.SaveTx(ctx, tx, d.job, next); err != nil {
			return err
		}
		if next.Step.Ended() && d.attempt.Group == d.attempt.ID && !d.attempt.Step.Intended() {
			return d.h.cfg.Store.DisbandTx(ctx, tx, d.attempt)
		}
		return nil
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
	case errors.Is(err, errElsewhere):
		return d.sendHome(ctx, err)
	case errors.As(err, &snooze):
		return d.later(ctx, d.attempt, queue.Release{After: snooze.After, WaitingFor: snooze.WaitingFor})
	case errors.As(err, &step):
		return d.retry(ctx, step)
	}
	return err
}

// retry puts the attempt back for a while after a problem, or parks it when there were too many of its class.
func (d *drive) retry(ctx context.Context, p *problem.StepError) error {
	next, cfg := d.attempt, d.h.cfg
	var met *int
	var most int
	switch p.Class() {
	case problem.Waiting:
		if next.LastError != p.Code {
			d.h.log.WarnContext(ctx, "landing waits", append(d.facts(), slog.String("code", p.Code), slog.Any("error", p.Err))...)
		}
		return d.later(ctx, next, queue.Release{After: min(2*cfg.RetryMin, cfg.RetryMax), WaitingFor: p.Code, Message: p.Reason()})
	case problem.Moved:
		met, most = &next.Moved, cfg.MaxMoved
	case problem.Operator:
		met, most = &next.Refused, cfg.MaxRefused
	default:
		met, most = &next.Later, cfg.MaxLater
	}
	*met++
	d.h.log.WarnContext(ctx, "landing has a problem", append(d.facts(),
		slog.String("code", p.Code), slog.Int("tries", *met), slog.Any("error", p.Err))...)
	if *met >= most {
		return d.park(ctx, next, p)
	}
	wait := cfg.RetryMin
	for i := 1; i < *met && wait < cfg.RetryMax; i++ {
		wait *= 2
	}
	return d.later(ctx, next, queue.Release{After: min(wait, cfg.RetryMax), WaitingFor: p.Code, Message: p.Reason()})
}

// later releases the job for a while, out of the line, with the attempt given back and the merge lease free.
func (d *drive) later(ctx context.Context, next attempt.Attempt, r queue.Release) error {
	next.LastError, next.Wait = r.WaitingFor, r.After
	return d.end(ctx, next, func(tx pgx.Tx) error { return d.job.ReleaseTx(ctx, tx, r) })
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
		next.Tries = attempt.Tries{} // for when the person has it tried again
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
