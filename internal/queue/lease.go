package queue

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"orch/internal/queue/internal/clock"
	"orch/internal/queue/internal/statement"
)

// Lease is the right to run one job under one epoch. doc.go has the protocol.
type Lease struct {
	q      *Queue
	worker Worker
	id     int64
	epoch  int

	stopping chan struct{}

	mu         sync.Mutex
	job        Job
	renewed    time.Duration // boot clock, taken before the last grant or renewal was sent
	ended      Outcome       // how the job ended, once that was committed
	waits      string        // and what it was released for
	lost       bool
	committing int     // transactions with an end in them whose COMMIT is on its way
	unsure     string  // transaction id of an end whose COMMIT had no answer
	unsureEnd  Outcome // and what that end was
	cause      error   // why the handler's context is over
	cancel     context.CancelCauseFunc
	stopBegun  bool
	phase      *string
	progress   json.RawMessage
	healthy    bool // there was new output since the last beat
}

func (q *Queue) newLease(w Worker, job Job, renewed time.Duration) *Lease {
	return &Lease{q: q, worker: w, id: job.ID, epoch: job.Epoch, job: job, renewed: renewed, stopping: make(chan struct{})}
}

// Job returns the row as it was claimed, with the run it was pinned by since.
func (l *Lease) Job() Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.job
}

// Worker returns who holds the lease.
func (l *Lease) Worker() Worker { return l.worker }

// Context derives the handler's context. Its cause is ErrLeaseLost, ErrCancelRequested or ErrStopping, whichever came
// first. The returned function frees it.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
	if l.cause != nil {
		cancel(l.cause)
	}
	return ctx, cancel
}

// MarkLost makes the lease refuse everything from now on, without asking the database, and ends the handler's context
// with the cause (nil = ErrLeaseLost). A COMMIT that was sent before counts as before.
func (l *Lease) MarkLost(cause error) {
	if cause == nil {
		cause = ErrLeaseLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	l.endContext(cause)
}

// markLostUnlessEnding is the verdict of someone who read the row: it doesn't count when the row may have changed
// because this lease itself ended the job.
func (l *Lease) markLostUnlessEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != "" || l.committing > 0 || l.unsure != "" || l.lost {
		return false
	}
	l.lost = true
	l.endContext(ErrLeaseLost)
	return true
}

// RequestCancel ends the handler's context with ErrCancelRequested; the lease stays held.
func (l *Lease) RequestCancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endContext(ErrCancelRequested)
}

func (l *Lease) endContext(cause error) {
	if l.cause == nil {
		l.cause = cause
	}
	if l.cancel != nil {
		l.cancel(l.cause)
	}
}

// Lost says whether the lease was marked lost.
func (l *Lease) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Ended says whether this lease has ended its job, committed.
func (l *Lease) Ended() bool { return l.Outcome() != "" }

// Outcome is how this lease ended its job, "" while it hasn't.
func (l *Lease) Outcome() Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// WaitsFor is what the job waits for since this lease has released it, "" when it doesn't.
func (l *Lease) WaitsFor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits
}

// Stopping is closed at the first stop signal of the worker.
func (l *Lease) Stopping() <-chan struct{} { return l.stopping }

// BeginStop closes Stopping. It may be called again.
func (l *Lease) BeginStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopBegun {
		l.stopBegun = true
		close(l.stopping)
	}
}

// SetPhase says what the job is doing; the next beat carries it.
func (l *Lease) SetPhase(phase string) {
	phase = statement.Storable(phase)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = &phase
}

// SetProgress keeps a JSON value that the next beat carries. One that can't be stored is dropped with a log line: a
// bad value must not stop the beat of all jobs.
func (l *Lease) SetProgress(progress any) {
	raw, err := statement.StorableJSON(progress)
	if err != nil {
		l.q.cfg.Logger.Warn("progress dropped", slog.Int64("job_id", l.id), slog.String("kind", l.job.Kind))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = raw
}

// NoteOutput says that the job's run has said something new: with the next beat, what its workers died of before no
// longer counts as a crash loop.
func (l *Lease) NoteOutput() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.healthy = true
}

// Silence is how long ago the lease was last granted or renewed, by a clock that runs while the machine sleeps.
func (l *Lease) Silence() time.Duration {
	now := clock.Boot()
	l.mu.Lock()
	defer l.mu.Unlock()
	return now - l.renewed
}

// Forget says that nothing in this process works under the lease any more. If the row is still this worker's, the next
// beat releases it.
func (l *Lease) Forget() { l.q.holder(l.worker.ID).remove(l) }

// beaten notes that a beat has renewed the lease, and told of new output if healthy.
func (l *Lease) beaten(at time.Duration, healthy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = max(l.renewed, at)
	if healthy {
		l.healthy = false
	}
}

func (l *Lease) grant() grant { return grant{l.id, l.epoch} }
