package alerts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/alert"
	"orch/internal/app/alerts"
	"orch/internal/db"
	"orch/internal/merge/lease"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/reaper"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is orch's parts, wired to alerts as the program does it.
type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *task.Store
	queue  *queue.Queue
	worker queue.Worker
	alerts *alerts.Alerts
	quiet  bool
	direct []alert.Alert
	log    bytes.Buffer
}

func newBench(t *testing.T, change ...func(*alerts.Config)) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t)}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	cfg := alerts.Config{
		Outbox: alert.NewOutbox(alert.Config{Pool: b.pool, Channels: []string{"telegram"}, Logger: log}), Host: "host", Logger: log,
		Direct:        func(_ context.Context, a alert.Alert) error { b.direct = append(b.direct, a); return nil },
		QuietReclaims: func(context.Context) bool { return b.quiet },
		Pipeline:      func(ctx context.Context, t task.Task) (flow.Pipeline, error) { return b.store.Pipeline(ctx, t) },
		Keys:          func(ctx context.Context, ids []int64) (map[int64]string, error) { return b.store.Keys(ctx, ids) },
	}
	for _, c := range change {
		c(&cfg)
	}
	b.alerts = alerts.New(cfg)
	var err error
	b.store, err = task.NewStore(b.pool, task.StoreConfig{
		Pipelines: task.Pipelines{flow.Short("default", "coder", "make test")}, OnBlockedTx: b.alerts.TaskBlockedTx,
	})
	b.no(err)
	b.queue = queue.New(b.pool, queue.Config{OnFailed: func(ctx context.Context, tx pgx.Tx, job queue.Job, code, message string) error {
		if err := b.store.JobFailedTx(ctx, tx, job, code, message); err != nil {
			return err
		}
		return b.alerts.JobFailedTx(ctx, tx, job, code, message)
	}})
	b.worker = queuetest.Worker(queuetest.Root(t, b.pool))
	b.no(b.queue.RegisterWorker(t.Context(), b.worker))
	return b
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create() task.Task {
	b.t.Helper()
	t, err := b.store.Create(b.t.Context(), task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "S3cret title", Body: "S3cret prompt", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	b.no(err)
	return t
}

func (b *bench) claim(lane, kind string) *queue.Lease {
	b.t.Helper()
	leases, err := b.queue.Claim(b.t.Context(), queue.ClaimRequest{Worker: b.worker, Lane: lane, Kinds: []string{kind}, Limit: 1, Repos: []string{"demo"}})
	b.no(err)
	if len(leases) != 1 {
		b.t.Fatalf("no %s job can be claimed", kind)
	}
	return leases[0]
}

func (b *bench) tx(fn func(tx pgx.Tx) error) {
	b.t.Helper()
	b.no(db.InTx(b.t.Context(), b.pool, fn))
}

// told lists what waits to be sent, oldest first. None of it has a word that could be a secret.
func (b *bench) told() []alert.Alert {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `select args from jobs where kind = 'alert.telegram' order by id`)
	b.no(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
	b.no(err)
	list := make([]alert.Alert, len(all))
	for i, raw := range all {
		b.no(json.Unmarshal(raw, &list[i]))
		if strings.Contains(string(raw), "S3cret") {
			b.t.Errorf("it tells a secret: %s", raw)
		}
	}
	return list
}

// one is the only alert.
func (b *bench) one(kind alert.Kind) alert.Alert {
	b.t.Helper()
	told := b.told()
	if len(told) != 1 || told[0].Kind != kind {
		b.t.Fatalf("told %+v, want one %s", told, kind)
	}
	return told[0]
}

func (b *bench) fail(ctx context.Context, l *queue.Lease, code string, then ...func(tx pgx.Tx) error) {
	b.t.Helper()
	b.no(l.Tx(ctx, func(tx pgx.Tx) error {
		if err := l.FailTx(ctx, tx, queue.Failure{Code: code, Message: "S3cret error text"}); err != nil {
			return err
		}
		for _, fn := range then {
			if err := fn(tx); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestJobThatBlocksItsTaskIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := b.create()
	b.fail(t.Context(), b.claim(task.LaneAgents, task.KindStage), "crash_loop")
	if a := b.one(alert.TaskBlocked); a.Task != added.Key || a.Repo != "demo" || a.Branch != added.Branch || a.Code != "crash_loop" {
		t.Errorf("%+v", a)
	}
}

func TestTaskThatIsBlockedAgainIsToldAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := b.create()
	for range 2 {
		b.fail(t.Context(), b.claim(task.LaneAgents, task.KindStage), "crash_loop")
		_, err := b.store.Retry(t.Context(), added.Key, "me", "")
		b.no(err)
	}
	if told := b.told(); len(told) != 2 || told[0].Key == told[1].Key {
		t.Errorf("%+v", told)
	}
}

func TestTaskAtItsLandingIsALandingThatIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := b.create()
	l := b.claim(task.LaneAgents, task.KindStage)
	b.no(l.Tx(t.Context(), func(tx pgx.Tx) error {
		if err := l.CompleteTx(t.Context(), tx); err != nil {
			return err
		}
		_, err := b.store.AdvanceTx(t.Context(), tx, added.At(), task.Advance{Commit: "c0ffee"})
		return err
	}))
	l = b.claim(task.LaneMerge, task.KindMerge)
	moved, err := b.store.ByID(t.Context(), added.ID)
	b.no(err)
	b.no(l.Tx(t.Context(), func(tx pgx.Tx) error {
		if err := l.CompleteTx(t.Context(), tx); err != nil {
			return err
		}
		_, err := b.store.BlockTx(t.Context(), tx, moved.At(), task.Block{Code: "checkout_dirty", Reason: "S3cret file"})
		return err
	}))
	if a := b.one(alert.LandingParked); a.Task != added.Key || a.Code != "checkout_dirty" {
		t.Errorf("%+v", a)
	}
}

// One cause, one alert, and it says that the job was reaped to failed (ORCH-065 FR-1.2).
func TestJobThatIsReapedToFailedIsToldAsSuchAndOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := b.create()
	job, run := b.claim(task.LaneAgents, task.KindStage).Job(), uuid.New()
	_, err := b.pool.Exec(t.Context(), `update jobs set max_attempts = attempt`)
	b.no(err)
	seen, err := look.NewStore(b.pool).RunningPage(t.Context(), 0, 10)
	b.no(err)
	if len(seen) != 1 {
		t.Fatalf("%+v", seen)
	}
	after, err := alerts.ReapedQueue{Queue: b.queue}.Take(t.Context(), seen[0], queue.Taking{
		Spend: true, Code: "process_dead", Reason: "process_dead",
		Within: func(ctx context.Context, tx pgx.Tx, before, after queue.Job) error {
			return b.alerts.JobReapedTx(ctx, tx, reaper.Reaped{
				JobID: before.ID, Epoch: before.Epoch, Kind: before.Kind, Task: added.Key, Repo: "demo", Branch: added.Branch, Agent: "coder", Host: "h1",
				Reason: "process_dead", Outcome: string(after.State), RunID: &run, PID: 4711,
			})
		},
	})
	if err != nil || after == nil || after.State != queue.StateFailed {
		t.Fatalf("%+v, %v", after, err)
	}
	if blocked, err := b.store.ByID(t.Context(), added.ID); err != nil || blocked.State != task.Blocked {
		t.Fatalf("%+v, %v", blocked, err)
	}
	a := b.one(alert.JobReaped)
	if a.Task != added.Key || a.JobID != job.ID || a.RunID != run.String() || a.PID != 4711 || a.Host != "h1" || a.Code != "process_dead" {
		t.Errorf("%+v", a)
	}
	if text := a.Text(alert.MaxText); !strings.Contains(text, "was reaped to failed") || !strings.Contains(text, "orch task retry "+added.Key) {
		t.Error(text)
	}
}

func TestReapedCleanUpIsTriedAgainAsAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tx(func(tx pgx.Tx) error {
		return b.alerts.JobReapedTx(t.Context(), tx, reaper.Reaped{JobID: 12, Epoch: 5, Kind: task.KindRetire, Task: "demo-1", Reason: "worker_dead", Outcome: "failed"})
	})
	if text := b.one(alert.JobReaped).Text(alert.MaxText); !strings.Contains(text, "`orch job retry 12`") || strings.Contains(text, "orch task") {
		t.Error(text)
	}
}

func TestJobThatGoesOnAfterAReapIsToldToNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tx(func(tx pgx.Tx) error {
		for _, outcome := range []string{"queued", "cancelled"} {
			if err := b.alerts.JobReapedTx(t.Context(), tx, reaper.Reaped{JobID: 1, Epoch: 1, Outcome: outcome}); err != nil {
				return err
			}
		}
		return nil
	})
	if told := b.told(); len(told) > 0 {
		t.Errorf("%+v", told)
	}
}

func TestFailedJobThatMovesNoTaskIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, err := b.queue.Enqueue(t.Context(), queue.Insert{Kind: "jobs.prune", Lane: "system"})
	b.no(err)
	b.fail(t.Context(), b.claim("system", "jobs.prune"), "handler_error")
	if a := b.one(alert.JobFailed); a.JobID != out.ID || a.Code != "handler_error" {
		t.Errorf("%+v", a)
	}
}

func TestAlertOfAnAlertIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.queue.Enqueue(t.Context(), alert.Insert("webhook", alert.Alert{Kind: alert.JobFailed, Key: "1"}))
	b.no(err)
	l := b.claim("system", "alert.webhook")
	job := l.Job()
	b.fail(t.Context(), l, "webhook_gone", func(tx pgx.Tx) error {
		return b.alerts.JobReapedTx(t.Context(), tx, reaper.Reaped{JobID: job.ID, Epoch: job.Epoch, Kind: job.Kind, Outcome: "failed"})
	})
	since := time.Now().Add(-30 * time.Hour)
	b.alerts.JobWaits(t.Context(), queue.Job{ID: job.ID, Kind: job.Kind, WaitingSince: &since}, "telegram_too_many", 30*time.Hour)
	if told := b.told(); len(told) > 0 {
		t.Errorf("%+v", told)
	}
}

func TestQuietReclaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := uuid.New()
	reclaimed := lease.Reclaimed{Lease: lease.Lease{
		Repo: "demo", Target: "main", Epoch: 5, Task: "demo-1", Branch: "orch/demo-1", JobID: 12, RunID: &run, Holder: lease.Holder{Host: "h1", PID: 4711},
	}, Reason: lease.ReasonProcessDead}
	b.quiet = true
	b.tx(func(tx pgx.Tx) error { return b.alerts.LeaseReclaimedTx(t.Context(), tx, reclaimed) })
	if told := b.told(); len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	b.quiet = false
	b.tx(func(tx pgx.Tx) error { return b.alerts.LeaseReclaimedTx(t.Context(), tx, reclaimed) })
	if a := b.one(alert.LeaseReclaimed); a.Task != "demo-1" || a.Host != "h1" || a.PID != 4711 || a.JobID != 12 || a.Code != "process_dead" {
		t.Errorf("%+v", a)
	}
}

func TestPauseThatNeedsAPersonOrLastsIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pause := func(name, code string, d time.Duration) {
		t.Helper()
		p := pause.Pause{Scope: pause.Agent, Name: name, Code: code, Reason: "S3cret: it said so"}
		if d > 0 {
			until := time.Now().Add(d)
			p.Until = &until
		}
		b.tx(func(tx pgx.Tx) error { return b.alerts.AgentPausedTx(t.Context(), tx, p) })
	}
	pause("coder", "rate_limited", time.Minute) // over soon
	if told := b.told(); len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	for d := range 3 { // each run that ends has it last a little longer
		pause("coder", "quota", 5*time.Hour+time.Duration(d)*time.Second)
	}
	if a := b.one(alert.AgentPaused); a.Agent != "coder" || !strings.HasPrefix(a.Reason, "its quota is used up, until 20") {
		t.Errorf("%+v", a)
	}
	pause("coder", "auth", 0)
	pause("coder", "auth", 0) // somebody resumed it, and it isn't good yet
	if told := b.told(); len(told) != 3 || told[2].Code != "auth" {
		t.Errorf("%+v", told)
	}
}

func TestWaitOfAJobIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	added := b.create()
	job := b.claim(task.LaneAgents, task.KindStage).Job()
	since := time.Now().Add(-30 * time.Hour)
	job.WaitingSince = &since
	wait := func() { b.alerts.JobWaits(t.Context(), job, "agent_paused:coder", 30*time.Hour) }
	wait()
	a := b.one(alert.JobWaits)
	if a.Task != added.Key || a.JobID != job.ID || !strings.Contains(a.Text(alert.MaxText), "for 30 hours, for agent_paused:coder") {
		t.Errorf("%+v", a)
	}
	_, err := b.pool.Exec(t.Context(), `delete from jobs where kind = 'alert.telegram'`) // it was sent
	b.no(err)
	wait()
	if told := b.told(); len(told) > 0 {
		t.Errorf("told again: %+v", told)
	}
	since = since.Add(time.Hour) // another wait
	wait()
	b.one(alert.JobWaits)
}
