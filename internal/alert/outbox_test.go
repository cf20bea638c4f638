package alert_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/alert"
	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	outbox *alert.Outbox
	log    bytes.Buffer
}

func newBench(t *testing.T, channels ...string) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t)}
	b.outbox = alert.NewOutbox(alert.Config{Pool: b.pool, Channels: channels, Logger: slog.New(slog.NewTextHandler(&b.log, nil))})
	return b
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) tell(a alert.Alert) bool {
	b.t.Helper()
	told, err := b.outbox.Enqueue(b.t.Context(), a)
	b.no(err)
	return told
}

func (b *bench) jobs() []queue.Job {
	b.t.Helper()
	jobs, err := overview.NewReader(b.pool).List(b.t.Context(), overview.Filter{})
	b.no(err)
	return jobs
}

func TestAlertIsEnqueuedWithItsCauseOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	undone := errors.New("undone")
	for _, end := range []error{undone, nil} {
		err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			b.no(b.outbox.EnqueueTx(t.Context(), tx, alert.Alert{Kind: alert.JobReaped, Key: "7:1", Quiet: time.Hour, JobID: 7}))
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		if end != nil && len(b.jobs()) > 0 {
			t.Errorf("undone, and told: %+v", b.jobs())
		}
	}
	jobs := b.jobs()
	if len(jobs) != 1 || jobs[0].Kind != "alert.telegram" || jobs[0].Lane != "system" || *jobs[0].ConcurrencyKey != "alert.telegram" ||
		*jobs[0].DedupeKey != "alert.telegram:job_reaped:7:1" || jobs[0].MaxAttempts != 30 {
		t.Errorf("%+v", jobs)
	}
}

func TestEachChannelGetsItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram", "webhook")
	b.tell(alert.Alert{Kind: alert.JobReaped, Key: "1"})
	b.tell(alert.Alert{Kind: alert.JobReaped, Key: "1"}) // waits to be sent already
	b.tell(alert.Alert{Kind: alert.JobFailed, Key: "1"})
	s, err := b.outbox.Snapshot(t.Context())
	b.no(err)
	if n := len(b.jobs()); n != 4 || s.Pending != 4 || s.Channel != "telegram,webhook" || s.Status != alert.StatusOK {
		t.Errorf("%d jobs, %+v", n, s)
	}
}

func TestWithoutAChannelItIsLogged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	told := b.tell(alert.Alert{Kind: alert.TaskBlocked, Key: "1", Task: "demo-65", Code: "rounds_exhausted", JobID: 3, PID: 4})
	s, err := b.outbox.Snapshot(t.Context())
	b.no(err)
	if !told || len(b.jobs()) > 0 || s != (alert.Snapshot{Channel: "none", Status: alert.StatusOff}) {
		t.Errorf("%v, %+v, %+v", told, b.jobs(), s)
	}
	for _, want := range []string{"level=WARN", "task_blocked", "demo-65", "rounds_exhausted", "job_id=3", "pid=4"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("no %q in %s", want, &b.log)
		}
	}
	h, err := b.outbox.Probe(t.Context())
	b.no(err)
	if h.Overdue != 0 {
		t.Errorf("%+v", h)
	}
}

func TestQuietAlertIsToldOnceWhoeverMeetsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	other := alert.NewOutbox(alert.Config{Pool: b.pool, Channels: []string{"telegram"}})
	a := alert.Alert{Kind: alert.AgentPaused, Key: "coder:quota", Quiet: time.Hour}
	first := b.tell(a)
	_, err := b.pool.Exec(t.Context(), `delete from jobs`) // it was sent
	b.no(err)
	again, err := other.Enqueue(t.Context(), a)
	b.no(err)
	if !first || again || len(b.jobs()) > 0 {
		t.Errorf("told: first %v, then %v", first, again)
	}
	if b.tell(alert.Alert{Kind: alert.AgentPaused, Key: "other:quota", Quiet: time.Hour}); len(b.jobs()) != 1 {
		t.Error("one cause keeps another's back")
	}
	_, err = b.pool.Exec(t.Context(), `update alerts_told set at = at - interval '1 hour'`)
	b.no(err)
	if !b.tell(a) {
		t.Error("an hour later it isn't told")
	}
	_, err = b.pool.Exec(t.Context(), `update alerts_told set at = at - interval '1 year'`)
	b.no(err)
	b.tell(alert.Alert{Kind: alert.MassDeath, Key: "host", Quiet: time.Hour})
	var left int
	b.no(b.pool.QueryRow(t.Context(), `select count(*) from alerts_told`).Scan(&left))
	if left != 1 {
		t.Errorf("%d are remembered", left)
	}
}

func TestUndoneAlertIsToldTheNextTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	a := alert.Alert{Kind: alert.MassDeath, Key: "host", Quiet: time.Hour}
	undone := errors.New("undone")
	err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error { return errors.Join(b.outbox.EnqueueTx(t.Context(), tx, a), undone) })
	if !errors.Is(err, undone) || !b.tell(a) {
		t.Errorf("%v", err)
	}
}

// A name that PostgreSQL doesn't take must not undo the cause.
func TestAnyNameIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	hostile := "a\x00b\xff`\n" + strings.Repeat("ü", 5000)
	b.tell(alert.Alert{
		Kind: alert.TaskBlocked, Key: hostile, Quiet: time.Hour, Task: hostile, Repo: hostile, Branch: hostile, Agent: hostile,
		Code: hostile, Reason: hostile, Host: hostile, RunID: hostile,
	})
	if n := len(b.jobs()); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

func TestSnapshotAndProbeTellOfWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	for _, key := range []string{"1", "2", "3"} {
		b.tell(alert.Alert{Kind: alert.JobReaped, Key: key})
	}
	_, err := b.pool.Exec(t.Context(), `update jobs set run_at = clock_timestamp() - interval '10 minutes' where id = (select min(id) from jobs);
		update jobs set run_at = clock_timestamp() + interval '10 minutes' where id = (select max(id) from jobs)`)
	b.no(err)
	h, err := b.outbox.Probe(t.Context())
	b.no(err)
	if h.Overdue < 10*time.Minute || h.Overdue > 15*time.Minute || h.Tried < 24*time.Hour {
		t.Errorf("%+v", h)
	}
	q := queue.New(b.pool, queue.Config{})
	me := queuetest.Worker(queuetest.Root(t, b.pool))
	b.no(q.RegisterWorker(t.Context(), me))
	leases, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: me, Lane: "system", Kinds: []string{"alert.telegram"}, Limit: 4})
	b.no(err)
	if len(leases) != 1 {
		t.Fatalf("%d run at once", len(leases))
	}
	b.no(alert.NoteSent(t.Context(), leases[0], "telegram", "telegram_unreachable"))
	s, err := b.outbox.Snapshot(t.Context())
	b.no(err)
	if s != (alert.Snapshot{Channel: "telegram", Status: alert.StatusFailing, Pending: 3, LastError: "telegram_unreachable"}) {
		t.Errorf("%+v", s)
	}
	if h, err = b.outbox.Probe(t.Context()); err != nil || h.Tried > time.Minute {
		t.Errorf("%+v, %v", h, err)
	}
	b.no(alert.NoteSent(t.Context(), leases[0], "telegram", ""))
	if s, err = b.outbox.Snapshot(t.Context()); err != nil || s.Status != alert.StatusOK || s.LastError != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestUnreachableDatabaseIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, probe := b.outbox.Probe(ctx)
	_, snapshot := b.outbox.Snapshot(ctx)
	_, enqueue := b.outbox.Enqueue(ctx, alert.Alert{Kind: alert.JobReaped, Key: "1"})
	if probe == nil || snapshot == nil || enqueue == nil {
		t.Errorf("%v, %v, %v", probe, snapshot, enqueue)
	}
}
