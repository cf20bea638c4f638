package stage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a database with a store, a queue and a worker to claim with.
type bench struct {
	t         *testing.T
	ctx       context.Context
	pool      *pgxpool.Pool
	queue     *queue.Queue
	store     *task.Store
	worker    queue.Worker
	pipelines task.Pipelines // may be changed meanwhile
	blocked   []string

	onPipeline func() // called once, when the handler asks for the pipeline
}

func newBench(t *testing.T, pipelines task.Pipelines) *bench {
	t.Helper()
	b := &bench{t: t, ctx: t.Context(), pool: testdb.New(t), pipelines: pipelines}
	store, err := task.NewStore(b.pool, task.StoreConfig{
		Catalog: b, CheckPrompt: prompt.Check,
		OnBlockedTx: func(_ context.Context, _ pgx.Tx, t task.Task) error {
			b.blocked = append(b.blocked, t.ReasonCode)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.store = store
	b.queue = queue.New(b.pool, queue.Config{OnFailed: store.JobFailedTx, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	b.worker = queue.Worker{ID: uuid.New(), RootID: uuid.New(), Host: "host", BootID: "boot", PIDNamespace: "pid:1", PID: 1, PIDStartedAt: 1}
	b.exec(`insert into roots (id, host, path) values ($1, 'host', '/root')`, b.worker.RootID)
	return b
}

// Pipeline implements task.Catalog.
func (b *bench) Pipeline(ctx context.Context, t task.Task) (flow.Pipeline, error) {
	if do := b.onPipeline; do != nil {
		b.onPipeline = nil
		do()
	}
	return b.pipelines.Pipeline(ctx, t)
}

// otherRoot is a worker of another data root.
func (b *bench) otherRoot() queue.Worker {
	b.t.Helper()
	other := b.worker
	other.ID, other.RootID, other.Host = uuid.New(), uuid.New(), "other"
	b.exec(`insert into roots (id, host, path) values ($1, 'other', '/root')`, other.RootID)
	return other
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx, sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.ctx, sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) create() task.Task {
	b.t.Helper()
	t, err := b.store.Create(b.ctx, task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "Do it", Body: "Please", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b *bench) get(id int64) task.Task {
	b.t.Helper()
	t, err := b.store.ByID(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

// kinds returns the kinds of a task's events.
func (b *bench) kinds(id int64) string {
	b.t.Helper()
	events, err := b.store.Events(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	kinds := make([]string, 0, len(events))
	for _, e := range events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func (b *bench) lastEvent(id int64, kind task.EventKind) task.Event {
	b.t.Helper()
	events, err := b.store.Events(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, event := range slices.Backward(events) {
		if event.Kind == kind {
			return event
		}
	}
	b.t.Fatalf("no event %s", kind)
	return task.Event{}
}

// job returns the live job that moves a task, or nil.
func (b *bench) job(id int64) *queue.Job {
	b.t.Helper()
	var job *queue.Job
	err := db.InTx(b.ctx, b.pool, func(tx pgx.Tx) (err error) {
		job, err = queue.ActiveForTaskTx(b.ctx, tx, id)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return job
}

// retires counts the retire jobs of a task that are still live.
func (b *bench) retires(id int64) int {
	b.t.Helper()
	return b.count(`select count(*) from jobs where kind = 'retire' and task_id = $1 and state in ('queued', 'running')`, id)
}

// claim holds the next job of a kind; nil when there is none.
func (b *bench) claim(kind string) *queue.Lease {
	b.t.Helper()
	lane := map[string]string{task.KindStage: task.LaneAgents, task.KindMerge: task.LaneMerge, task.KindRetire: task.LaneSystem}[kind]
	leases, err := b.queue.Claim(b.ctx, queue.ClaimRequest{Worker: b.worker, Lane: lane, Kinds: []string{kind}, Limit: 1, Repos: []string{"demo"}})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(leases) == 0 {
		return nil
	}
	return leases[0]
}

func (b *bench) mustClaim(kind string) *queue.Lease {
	b.t.Helper()
	l := b.claim(kind)
	if l == nil {
		b.t.Fatalf("no %s job can be claimed", kind)
	}
	return l
}

// move ends the held job and makes a transition, as handlers do.
func (b *bench) move(l *queue.Lease, transition func(tx pgx.Tx) (task.Moved, error)) task.Moved {
	b.t.Helper()
	var moved task.Moved
	err := l.Tx(b.ctx, func(tx pgx.Tx) (err error) {
		if err := l.CompleteTx(b.ctx, tx); err != nil {
			return err
		}
		moved, err = transition(tx)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return moved
}

// land ends the held merge job and its task.
func (b *bench) land(l *queue.Lease, at task.At) {
	b.t.Helper()
	b.move(l, func(tx pgx.Tx) (task.Moved, error) {
		return b.store.LandedTx(b.ctx, tx, at, task.Landing{Commit: "abc"})
	})
}

type handler interface {
	Run(ctx context.Context, l *queue.Lease) error
}

// run has a handler do a held job and then does what a worker would do with its answer, which is returned.
func (b *bench) run(h handler, l *queue.Lease) error {
	b.t.Helper()
	ctx, free := l.Context(b.ctx)
	defer free(nil)
	answer := h.Run(ctx, l)
	if l.Ended() || errors.Is(answer, queue.ErrLeaseLost) {
		return answer
	}
	err := l.Tx(b.ctx, func(tx pgx.Tx) error {
		var snooze *queue.SnoozeError
		var failure *queue.Failure
		switch {
		case answer == nil:
			return l.CompleteTx(b.ctx, tx)
		case errors.As(answer, &snooze):
			return l.ReleaseTx(b.ctx, tx, queue.Release{WaitingFor: snooze.WaitingFor})
		case errors.Is(answer, queue.ErrStopping):
			return l.ReleaseTx(b.ctx, tx, queue.Release{})
		case errors.Is(answer, queue.ErrCancelRequested):
			return l.CancelledTx(b.ctx, tx)
		case !errors.As(answer, &failure):
			failure = &queue.Failure{Code: "internal", Err: answer}
		}
		_, err := l.RetryTx(b.ctx, tx, *failure)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// due makes every queued job claimable now.
func (b *bench) due() {
	b.t.Helper()
	b.exec(`update jobs set run_at = now() where state = 'queued'`)
}
