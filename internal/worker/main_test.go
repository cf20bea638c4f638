package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

func TestMain(m *testing.M) {
	if raw := os.Getenv(processVariable); raw != "" {
		if err := runProcess(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

// bench is one worker on a database of its own.
type bench struct {
	t       *testing.T
	pool    *pgxpool.Pool // direct
	through *pgxpool.Pool // the worker's
	q       *queue.Queue
	cfg     worker.Config
	w       *worker.Worker
	log     *logBuffer
	stop    context.CancelCauseFunc
	done    chan error
}

type handlers map[string]worker.Handler

func fn(run func(ctx context.Context, l *queue.Lease) error) worker.Handler {
	return worker.HandlerFunc(run)
}

// newBench prepares a worker whose poll is an hour: what isn't woken doesn't run.
func newBench(t *testing.T, hs handlers, change ...func(*bench)) *bench {
	t.Helper()
	pool := testdb.New(t)
	return benchOn(t, pool, pool, hs, change...)
}

func benchOn(t *testing.T, direct, pool *pgxpool.Pool, hs handlers, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, pool: direct, through: pool, log: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(b.log, nil))
	b.q = queue.New(pool, queue.Config{LeaseTTL: time.Minute, QueryTimeout: 10 * time.Second, Logger: log})
	b.cfg = worker.Config{
		Queue: b.q, Worker: queuetest.Worker(queuetest.Root(t, direct)), Lanes: map[string]int{"lane": 2, "other": 1},
		Handlers: hs, KindLane: map[string]string{}, Poll: time.Hour, Heartbeat: 15 * time.Second, StopGrace: time.Minute, Logger: log,
	}
	for kind := range hs {
		b.cfg.KindLane[kind] = "lane"
	}
	for _, c := range change {
		c(b)
	}
	w, err := worker.New(b.cfg)
	b.no(err)
	b.w = w
	return b
}

// start runs the worker until the test's end, or finish.
func (b *bench) start() *bench {
	b.t.Helper()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(b.t.Context()))
	b.stop, b.done = stop, make(chan error, 1)
	ready := make(chan struct{})
	w, done := b.w, b.done
	go func() { done <- w.Run(ctx, func() { close(ready) }) }()
	queuetest.Wait(b.t, "ready", ready)
	b.t.Cleanup(func() { stop(errors.New("the test is over")); w.HurryUp(); b.finish() })
	return b
}

// listen wakes the worker as orch's listener does, until the test's end.
func (b *bench) listen() {
	b.t.Helper()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(b.t.Context()))
	listener := processListener(testdb.ConnConfig(b.pool), b.w, b.cfg.Logger)
	done := make(chan error, 1)
	go func() { done <- listener.Run(ctx, func() {}) }()
	b.t.Cleanup(func() { stop(nil); b.no(queuetest.Wait(b.t, "end of the listener", done)) })
	queuetest.Until(b.t, "listening", listener.Connected)
}

// finish waits for the end of Run.
func (b *bench) finish() {
	b.t.Helper()
	if b.done == nil {
		return
	}
	done := b.done
	b.done = nil
	b.no(queuetest.Wait(b.t, "end of Run", done))
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// add queues a job and wakes its lane, as the listener would.
func (b *bench) add(in queue.Insert) int64 {
	b.t.Helper()
	if in.Lane == "" {
		in.Lane = "lane"
	}
	out, err := queue.New(b.pool, queue.Config{}).Enqueue(b.t.Context(), in)
	b.no(err)
	b.w.Wake(in.Lane)
	return out.ID
}

func (b *bench) get(id int64) queue.Job {
	b.t.Helper()
	job, err := queue.New(b.pool, queue.Config{}).Get(b.t.Context(), id)
	b.no(err)
	return job
}

func (b *bench) until(id int64, state queue.State) queue.Job {
	b.t.Helper()
	queuetest.Until(b.t, "job is "+string(state), func() bool { return b.get(id).State == state })
	return b.get(id)
}

func (b *bench) stats(want worker.Stats) {
	b.t.Helper()
	queuetest.Until(b.t, "stats", func() bool {
		got := b.w.Stats()
		got.Errors = want.Errors
		return got == want
	})
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// block is a handler that waits for its context, and the channel on which it says that it began.
func block() (chan *queue.Lease, worker.Handler) {
	began := make(chan *queue.Lease, 100)
	return began, fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
