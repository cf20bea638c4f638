package queue

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

const (
	// CodeCrashLoop is the code of a job under which workers died again and again.
	CodeCrashLoop = "crash_loop"

	// MaxRecoveries is how often a job may be taken from workers that died under it; the next time it fails with crash_loop.
	MaxRecoveries = 5

	crashLoopMessage = "its worker died under it again and again"
)

// Seen is a running job as a look found it, all times by the database's clock. What is done about it goes by Take.
type Seen struct {
	Job
	Worker        Worker // who holds it; zero when the worker's row is gone
	WorkerStopped bool   // it has said goodbye, or was noted to be gone
	Expired       bool   // the lease has run out
	RunFinished   bool   // the end of the run that pins it is noted
	Agent         string // whose run that is; empty without one
	// Since is when it was granted, or the last of its runs ended, Elapsed for how long it has run since: how long a living run
	// has gone on is the run's to tell.
	Since   time.Time
	Elapsed time.Duration
}

// Taking says what becomes of a running job that is taken from its worker.
type Taking struct {
	Reason string // a code, for the error of a job that fails without a code of its own

	// Spend ends the attempt, and lets go of the run: it is over, and Within consumes it. The job is queued again after a
	// back-off, or fails with Code and Message when the attempts are used up, or is cancelled when that was asked for.
	// Without it the attempt is given back and the run stays: the job goes to whoever can follow it, at once.
	Spend         bool
	Code, Message string

	// Recovery counts as a death of the job's worker, also under a run that has ended: after MaxRecoveries of them in a row the
	// job fails with crash_loop. Not under a run that lives: that is no crash loop, however often orch is restarted meanwhile.
	Recovery bool

	// StillExpired and StillPhase refuse when the lease was renewed since, and when the job is in another phase by now.
	StillExpired, StillPhase bool

	// Within does the rest in the same transaction: before is what was seen, after what the job became. Its error undoes all.
	Within func(ctx context.Context, tx pgx.Tx, before, after Job) error
}

// Take takes a running job from its worker (ORCH-065 FR-1.2), in one transaction and only as it was seen: running, held by
// the same worker under the same epoch, pinned by the same run. nil without an error means that it isn't so any more:
// somebody was first. A row that somebody has locked is an error after half a second, and left to the next look: others wait
// behind it. The job is returned as it became; a failed one has been told to OnFailed in the transaction.
func (q *Queue) Take(ctx context.Context, s Seen, t Taking) (*Job, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	var taken *Job
	err := db.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '500ms'`); err != nil {
			return err
		}
		after, err := q.takeTx(ctx, tx, s.Job, t)
		if taken = after; err != nil || after == nil {
			return err
		}
		if t.Within != nil {
			if err := t.Within(ctx, tx, s.Job, *after); err != nil {
				return err
			}
		}
		if s.ConcurrencyKey == nil {
			return nil
		}
		_, err = tx.Exec(ctx, wakeSQL, pgx.NamedArgs{"lanes": []string{s.Lane}, "keys": []string{*s.ConcurrencyKey}})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take job %d from its worker: %w", s.ID, err)
	}
	return taken, nil
}

// asSeen is the fence of who isn't the holder.
const asSeen = held + ` and run_id is not distinct from @run`

const (
	// The run is over, and nobody has to end it before a cancel may come true.
	setSpent = `state = case when cancel_requested_at is not null then 'cancelled' else 'queued' end::job_state,
	finished_at = case when cancel_requested_at is not null then clock_timestamp() end, root_id = null, host = null` + unheld + `,
	run_id = null, phase = null, waiting_since = null, error_code = @code, error = @message,
	run_at = clock_timestamp() + make_interval(secs => @after)`

	unpinned = `, run_id = null`
)

// takeTx is the transition; nil when the job isn't as it was seen.
func (q *Queue) takeTx(ctx context.Context, tx pgx.Tx, job Job, t Taking) (*Job, error) {
	where := asSeen
	if t.StillExpired {
		where += ` and lease_expires_at < clock_timestamp()`
	}
	if t.StillPhase {
		where += ` and phase is not distinct from @phase`
	}
	fence := pgx.NamedArgs{"id": job.ID, "worker": job.WorkerID, "epoch": job.Epoch, "run": job.RunID, "phase": job.Phase}
	switch {
	case t.Spend && job.Attempt < job.MaxAttempts:
		code, message := t.says()
		maps.Copy(fence, pgx.NamedArgs{"code": code, "message": message, "after": seconds(q.backoff(job.Attempt))})
		return one(move(ctx, tx, setSpent, where, fence))
	case t.Spend:
		code, message := t.says()
		if after, err := q.failTaken(ctx, tx, setFailed+unpinned, where, fence, code, message); err != nil || after != nil {
			return after, err
		}
		return one(move(ctx, tx, setCancelled+unpinned, where+` and cancel_requested_at is not null`, fence))
	case t.Recovery && job.Recoveries >= MaxRecoveries:
		after, err := q.failTaken(ctx, tx, setFailed, where, fence, CodeCrashLoop, crashLoopMessage)
		if err != nil || after != nil {
			return after, err
		}
	}
	maps.Copy(fence, Release{Recovery: t.Recovery}.args())
	return one(move(ctx, tx, setReleased, where, fence))
}

func (t Taking) says() (code, message string) {
	code, message = t.Code, t.Message
	if code == "" {
		code = t.Reason
	}
	return statement.Storable(code), statement.Storable(message)
}

// failTaken fails a job that nobody wants cancelled; nil when somebody does, or it isn't as it was seen.
func (q *Queue) failTaken(ctx context.Context, tx pgx.Tx, set, where string, fence pgx.NamedArgs, code, message string) (*Job, error) {
	args := maps.Clone(fence)
	args["code"], args["message"] = code, message
	after, err := one(move(ctx, tx, set, where+` and cancel_requested_at is null`, args))
	if err != nil || after == nil {
		return nil, err
	}
	return after, q.failed(ctx, tx, *after, code, message)
}

// one makes a transition whose condition didn't hold nil.
func one(job Job, err error) (*Job, error) {
	switch {
	case isNoRows(err):
		return nil, nil //nolint:nilnil // a normal answer
	case err != nil:
		return nil, err
	default:
		return &job, nil
	}
}
