package task

import (
	"context"
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
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what testing.T and rapid.T have in common here.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// bench is a database with a store, a queue and a worker to claim with.
type bench struct {
	t       tb
	ctx     context.Context
	pool    *pgxpool.Pool
	queue   *queue.Queue
	store   *Store
	worker  queue.Worker
	landing bool // the landing is past the point where a cancel wins
	offered bool // its work is in the repository
	stopped int  // landings
	blocked []string
}

func newBench(t *testing.T, pipelines ...flow.Pipeline) *bench {
	t.Helper()
	if pipelines == nil {
		pipelines = Pipelines{flow.Short("default", "coder", "make test")}
	}
	b := &bench{t: t, ctx: t.Context(), pool: testdb.New(t)}
	store, err := NewStore(b.pool, StoreConfig{
		Pipelines:     pipelines,
		StopLandingTx: func(context.Context, pgx.Tx, int64) (bool, error) { b.stopped++; return !b.landing, nil },
		OnBlockedTx: func(_ context.Context, _ pgx.Tx, t Task) error {
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

// six is the pipeline with all stages.
func six() flow.Pipeline {
	gates := []flow.GateRef{{Name: "commits"}}
	return flow.Pipeline{Name: "six", Stages: []flow.Stage{
		{Name: flow.Analysis, Agent: "a", Gates: gates},
		{Name: flow.Architecture, Agent: "b", Gates: gates},
		{Name: flow.Development, Agent: "c", Gates: gates},
		{Name: flow.Review, Agent: "d", Gates: gates},
		{Name: flow.Testing, Gates: gates},
		{Name: flow.Deploy, Gates: []flow.GateRef{{Name: flow.BranchMergeable}}},
	}}
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

func newAdd() Add {
	return Add{Repo: "demo", Location: "/srv/demo", Title: "Do it", Body: "Please", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true}
}

func (b *bench) create(change ...func(*Add)) Task {
	b.t.Helper()
	add := newAdd()
	for _, fn := range change {
		fn(&add)
	}
	t, err := b.store.Create(b.ctx, add)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b *bench) get(id int64) Task {
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

func (b *bench) lastEvent(id int64, kind EventKind) Event {
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
	return Event{}
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
	lane := map[string]string{KindStage: LaneAgents, KindMerge: LaneMerge, KindRetire: LaneSystem}[kind]
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
func (b *bench) move(l *queue.Lease, transition func(tx pgx.Tx) (Moved, error)) Moved {
	b.t.Helper()
	var moved Moved
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

// inTx makes a transition without a job: a late or repeated delivery.
func (b *bench) inTx(transition func(tx pgx.Tx) (Moved, error)) Moved {
	b.t.Helper()
	var moved Moved
	err := db.InTx(b.ctx, b.pool, func(tx pgx.Tx) (err error) {
		moved, err = transition(tx)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return moved
}

func (b *bench) advance(at At) func(pgx.Tx) (Moved, error) {
	return func(tx pgx.Tx) (Moved, error) { return b.store.AdvanceTx(b.ctx, tx, at, Advance{}) }
}

func (b *bench) sendBack(at At, r Return) func(pgx.Tx) (Moved, error) {
	return func(tx pgx.Tx) (Moved, error) { return b.store.ReturnTx(b.ctx, tx, at, r) }
}

func (b *bench) block(at At, block Block) func(pgx.Tx) (Moved, error) {
	return func(tx pgx.Tx) (Moved, error) { return b.store.BlockTx(b.ctx, tx, at, block) }
}

func (b *bench) wait(at At, w Wait) func(pgx.Tx) (Moved, error) {
	return func(tx pgx.Tx) (Moved, error) { return b.store.WaitTx(b.ctx, tx, at, w) }
}

func (b *bench) land(at At, l Landing) func(pgx.Tx) (Moved, error) {
	return func(tx pgx.Tx) (Moved, error) { return b.store.LandedTx(b.ctx, tx, at, l) }
}

// due makes every queued job claimable now.
func (b *bench) due() {
	b.t.Helper()
	b.exec(`update jobs set run_at = now() where state = 'queued'`)
}

// revive gives each active task without a job one, and says how many there were.
func (b *bench) revive() (n int) {
	b.t.Helper()
	found, err := b.store.Jobless(b.ctx, 0, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range found {
		done, err := b.store.ReviveOne(b.ctx, f.ID, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		if done {
			n++
		}
	}
	return n
}
