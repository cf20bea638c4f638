package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
	"orch/internal/queue"
)

// Codes of failures that the worker itself names.
const (
	CodeHandlerError = "handler_error" // the handler returned a plain error
	CodePanic        = "panic"         // it panicked, or ended its goroutine
)

const (
	firstResend = 50 * time.Millisecond
	brokenTries = 5 // of an end that the database refuses for other reasons than being away
)

var errExited = errors.New("handler ended its goroutine")

// work runs one job. Whatever its handler does, it is the only one that suffers. The handler's context isn't under
// hard: its end has a cause of its own, and comes after the lease is marked.
func (s *session) work(hard context.Context, l *lane, lease *queue.Lease) {
	ctx, cancel := lease.Context(context.WithoutCancel(hard))
	defer cancel(nil)
	job := lease.Job()
	if job.CancelRequestedAt != nil {
		lease.RequestCancel()
	}
	var err error = &queue.Failure{Code: CodePanic, Err: errExited}
	defer func() { // also when the handler called runtime.Goexit
		if value := recover(); value != nil {
			s.w.log.ErrorContext(ctx, "handler panicked", slog.Int64("job_id", job.ID), slog.String("kind", job.Kind),
				slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
			err = &queue.Failure{Code: CodePanic, Message: fmt.Sprint(value)}
		}
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = context.Cause(ctx) // the handler just passed on that it was interrupted
		}
		s.handlerReturned(lease)
		s.finish(hard, l, lease, err)
	}()
	err = s.w.cfg.Handlers[job.Kind].Run(ctx, lease)
}

// finish ends the job as its handler's error says.
func (s *session) finish(hard context.Context, l *lane, lease *queue.Lease, err error) {
	if err == nil && !lease.Ended() && !lease.Lost() {
		s.completer.Hand(hard, lease, func(err error) { s.completed(hard, l, lease, err) })
		return
	}
	s.completer.HandlerReturned(hard)
	defer s.over(l, lease)
	switch {
	case lease.Ended():
		if err != nil && !lease.Lost() {
			s.w.log.WarnContext(hard, "handler failed after it had ended its job", s.about(lease, err)...)
		}
		s.settled(hard, lease, err)
	case lease.Lost() || errors.Is(err, queue.ErrLeaseLost):
		s.lost(hard, lease)
	default:
		s.write(hard, lease, err)
	}
}

// completed is told what became of a success that was to be recorded together with others. What couldn't be done so is
// done alone, like any other end.
func (s *session) completed(hard context.Context, l *lane, lease *queue.Lease, err error) {
	switch {
	case lease.Ended():
		s.settled(hard, lease, nil)
	case errors.Is(err, queue.ErrLeaseLost):
		s.lost(hard, lease)
	default:
		go func() {
			defer s.over(l, lease)
			if hard.Err() == nil && !errors.Is(err, queue.ErrAlone) { // else the end of the grace interrupted it
				s.outages.failed(hard, "end", err)
			}
			s.write(hard, lease, nil)
		}()
		return
	}
	s.over(l, lease)
}

// over frees the slot of a job whose end is written, or given up.
func (s *session) over(l *lane, lease *queue.Lease) {
	s.leave(lease)
	l.freeSlot()
	s.working.Done()
}

// write puts the end into the database, again and again while that is away: a job that finished meanwhile is recorded
// when it is back, if the epoch still holds. The stop ends it.
func (s *session) write(hard context.Context, lease *queue.Lease, result error) {
	wait := firstResend
	for broken := 0; ; {
		err := s.guard(hard, "end job", func() error {
			return lease.Tx(hard, func(tx pgx.Tx) error { return s.end(hard, lease, tx, result) })
		})
		switch {
		case lease.Ended():
			s.outages.over(hard, "end")
			s.settled(hard, lease, result)
			return
		case lease.Lost() || errors.Is(err, queue.ErrLeaseLost):
			s.lost(hard, lease)
			return
		}
		s.outages.failed(hard, "end", err)
		if !passing(err) {
			broken++
		}
		if broken >= brokenTries {
			// Its lease runs out, and the reaper counts the attempt: nothing hangs, nothing loops.
			s.w.log.ErrorContext(hard, "job's end could not be written", s.about(lease, err)...)
			return
		}
		if !sleep(hard, wait) {
			return
		}
		wait = min(2*wait, s.w.cfg.Poll)
	}
}

// passing says whether an error is of the kind that goes away by itself.
func passing(err error) bool {
	switch db.Code(err) {
	case db.CodeDeadlock, db.CodeSerialization, db.CodeTimeout, db.CodeStatement, db.CodeLock, db.CodeReadOnly, db.CodeNoResource:
		return true
	default:
		return db.Unreachable(err)
	}
}

// end writes what the handler's result means.
func (s *session) end(ctx context.Context, lease *queue.Lease, tx pgx.Tx, result error) error {
	var snooze *queue.SnoozeError
	var failure *queue.Failure
	switch {
	case result == nil:
		return lease.CompleteTx(ctx, tx)
	case errors.Is(result, queue.ErrCancelRequested):
		return lease.CancelledTx(ctx, tx)
	case errors.Is(result, queue.ErrStopping):
		release := queue.Release{}
		if !s.isStopping() {
			release.After = s.w.cfg.Poll // a handler that is mistaken must not spin
		}
		return lease.ReleaseTx(ctx, tx, release)
	case errors.As(result, &snooze):
		after := snooze.After
		if after <= 0 {
			after = s.w.cfg.Poll
		}
		return lease.ReleaseTx(ctx, tx, queue.Release{After: after, WaitingFor: snooze.WaitingFor})
	case errors.As(result, &failure):
		_, err := lease.RetryTx(ctx, tx, *failure)
		return err
	case errors.Is(result, queue.ErrUnavailable), ofDatabase(result) && db.Unreachable(result): // no fault of the job's
		return lease.ReleaseTx(ctx, tx, queue.Release{After: s.w.cfg.Poll, WaitingFor: "database"})
	default:
		_, err := lease.RetryTx(ctx, tx, queue.Failure{Code: CodeHandlerError, Err: result})
		return err
	}
}

// ofDatabase tells errors of the database from those that only look like it: a handler has a network and deadlines of its
// own, and their failures are to spend attempts.
func ofDatabase(err error) bool {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	_, ok := errors.AsType[interface {
		error
		SafeToRetry() bool
	}](err)
	return ok || errors.Is(err, pgconn.ErrConnClosed)
}

// settled counts a committed end, and tells of a wait that is too long.
func (s *session) settled(ctx context.Context, lease *queue.Lease, result error) {
	if !s.countOnce(lease) {
		return
	}
	s.w.stats.count(lease.Outcome())
	job := lease.Job()
	attrs := []any{slog.Int64("job_id", job.ID), slog.String("kind", job.Kind), slog.String("outcome", string(lease.Outcome())), slog.Int("attempt", job.Attempt)}
	if result != nil {
		attrs = append(attrs, slog.Any("error", result)) // why an attempt was spent
	}
	s.w.log.InfoContext(ctx, "job ended", attrs...)
	s.noteWait(ctx, lease)
}

// lost counts a lease that somebody else has, or may have. What the handler returned is dropped.
func (s *session) lost(hard context.Context, lease *queue.Lease) {
	lease.MarkLost(queue.ErrLeaseLost)
	defer lease.Forget()
	if s.isAbandoning() || !s.countOnce(lease) {
		return // abandoned by the stop, which released it
	}
	s.w.stats.lost.Add(1)
	job := lease.Job()
	s.w.log.WarnContext(hard, "lease lost", slog.Int64("job_id", job.ID), slog.String("kind", job.Kind), slog.Int("epoch", job.Epoch))
}

func (s *session) about(lease *queue.Lease, err error) []any {
	job := lease.Job()
	return []any{slog.Int64("job_id", job.ID), slog.String("kind", job.Kind), slog.Any("error", err)}
}

// sleep waits, or returns false because ctx is over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
