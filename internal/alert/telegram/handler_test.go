package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/alert"
	"orch/internal/alert/telegram"
	"orch/internal/alert/telegram/telegramtest"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

// bench is a queue whose workers send to a fake Telegram.
type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	server *telegramtest.Server
	outbox *alert.Outbox
	queue  *queue.Queue

	mu  sync.Mutex
	log bytes.Buffer
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t), server: telegramtest.New(t)}
	b.outbox = alert.NewOutbox(alert.Config{Pool: b.pool, Channels: []string{telegram.Channel}})
	b.queue = queue.New(b.pool, queue.Config{BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond, Logger: b.logger()})
	return b
}

func (b *bench) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// work runs a worker that has the channel, until the test's end.
func (b *bench) work(spacing time.Duration) {
	b.t.Helper()
	w, err := worker.New(worker.Config{
		Queue: b.queue, Worker: queuetest.Worker(queuetest.Root(b.t, b.pool)), Lanes: map[string]int{"system": 4},
		Handlers: map[string]worker.Handler{telegram.Kind: telegram.NewHandler(telegram.HandlerConfig{
			Sender: newSender(b.t, b.server), Spacing: spacing, Logger: b.logger(),
		})},
		KindLane: map[string]string{telegram.Kind: "system"}, Poll: 10 * time.Millisecond, Logger: b.logger(),
	})
	b.no(err)
	ctx, stop := context.WithCancelCause(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func() {}) }()
	b.t.Cleanup(func() {
		stop(errors.New("the test is over"))
		w.HurryUp()
		b.no(queuetest.Wait(b.t, "end of the worker", done))
	})
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// tell enqueues an alert and returns its job.
func (b *bench) tell(a alert.Alert) int64 {
	b.t.Helper()
	told, err := b.outbox.Enqueue(b.t.Context(), a)
	b.no(err)
	if !told {
		b.t.Fatalf("%+v isn't told", a)
	}
	var id int64
	b.no(b.pool.QueryRow(b.t.Context(), `select max(id) from jobs`).Scan(&id))
	return id
}

func (b *bench) until(id int64, state queue.State) queue.Job {
	b.t.Helper()
	var job queue.Job
	queuetest.Until(b.t, "job is "+string(state), func() bool {
		var err error
		job, err = b.queue.Get(b.t.Context(), id)
		b.no(err)
		return job.State == state
	})
	return job
}

func (b *bench) snapshot() alert.Snapshot {
	b.t.Helper()
	s, err := b.outbox.Snapshot(b.t.Context())
	b.no(err)
	return s
}

func key(n int) alert.Alert {
	a := blocked()
	a.Key = strings.Repeat("k", n)
	return a
}

func TestAlertOfTheQueueIsSent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.tell(key(1))
	if s := b.snapshot(); s != (alert.Snapshot{Channel: "telegram", Status: alert.StatusOK, Pending: 1}) {
		t.Errorf("before: %+v", s)
	}
	b.work(time.Millisecond)
	b.until(id, queue.StateSucceeded)
	if got := b.server.Messages(); len(got) != 1 || !strings.Contains(got[0].Text, "Task demo-65 needs you") {
		t.Errorf("%+v", got)
	}
	if s := b.snapshot(); s != (alert.Snapshot{Channel: "telegram", Status: alert.StatusOK}) {
		t.Errorf("after: %+v", s)
	}
}

func TestRetryAfterIsWaitedForWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refusal := telegramtest.Refusal(429, "Too Many Requests", 3600)
	b.server.AnswerWith(func(int) *telegramtest.Answer { return &refusal })
	id := b.tell(key(1))
	b.work(time.Millisecond)
	var job queue.Job
	queuetest.Until(t, "the job waits", func() bool {
		var err error
		job, err = b.queue.Get(t.Context(), id)
		b.no(err)
		return job.State == queue.StateQueued && job.Phase != nil
	})
	var wait float64
	b.no(b.pool.QueryRow(t.Context(), `select extract(epoch from run_at - waiting_since)::float8 from jobs where id = $1`, id).Scan(&wait))
	if job.Attempt != 0 || *job.Phase != telegram.CodeTooMany || wait < 3000 {
		t.Errorf("attempt %d, phase %s, for %f s", job.Attempt, *job.Phase, wait)
	}
	if s := b.snapshot(); s.Status != alert.StatusFailing || s.LastError != telegram.CodeTooMany || s.Pending != 1 {
		t.Errorf("%+v", s)
	}
	b.server.AnswerWith(nil)
	_, err := b.pool.Exec(t.Context(), `update jobs set run_at = now() where id = $1`, id)
	b.no(err)
	b.until(id, queue.StateSucceeded)
	if s := b.snapshot(); s.Status != alert.StatusOK || s.LastError != "" {
		t.Errorf("it got through: %+v", s)
	}
}

func TestCrowdOfAlertsWaitsAsOneForAsLongAsTelegramSays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refusal := telegramtest.Refusal(429, "Too Many Requests", 3600)
	b.server.AnswerWith(func(int) *telegramtest.Answer { return &refusal })
	for n := range 5 {
		b.tell(key(n + 1))
	}
	b.work(time.Millisecond)
	queuetest.Until(t, "all wait", func() bool {
		var waiting int
		b.no(b.pool.QueryRow(t.Context(), `select count(*) from jobs where state = 'queued' and phase = $1 and attempt = 0`, telegram.CodeTooMany).Scan(&waiting))
		return waiting == 5
	})
	if tries := b.server.Tries(); tries != 1 {
		t.Errorf("Telegram was asked %d times", tries)
	}
}

func TestBrokenTelegramIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.AnswerWith(func(try int) *telegramtest.Answer {
		if try < 4 {
			return &telegramtest.Answer{Status: 502, Body: "<html>"}
		}
		return nil
	})
	id := b.tell(key(1))
	b.work(time.Millisecond)
	if job := b.until(id, queue.StateSucceeded); job.Attempt != 4 || len(b.server.Messages()) != 1 {
		t.Errorf("attempt %d, %d messages", job.Attempt, len(b.server.Messages()))
	}
}

func TestRefusedAlertIsDroppedAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refusal := telegramtest.Refusal(403, "Forbidden: bot was kicked by "+telegramtest.Token, 0)
	b.server.AnswerWith(func(int) *telegramtest.Answer { return &refusal })
	id := b.tell(key(1))
	b.work(time.Millisecond)
	job := b.until(id, queue.StateFailed)
	if job.Attempt != 1 || *job.ErrorCode != telegram.CodeForbidden || b.server.Tries() != 1 {
		t.Errorf("attempt %d, %s, %d tries", job.Attempt, *job.ErrorCode, b.server.Tries())
	}
	if log := b.logged(); strings.Count(log, "alert dropped") != 1 || !strings.Contains(log, "let the bot into the chat") || !strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
	if s := b.snapshot(); s.Status != alert.StatusFailing || s.LastError != telegram.CodeForbidden || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLastAttemptIsDroppedAloud(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.AnswerWith(func(int) *telegramtest.Answer { return &telegramtest.Answer{Status: 500, Body: "{}"} })
	id := b.tell(key(1))
	_, err := b.pool.Exec(t.Context(), `update jobs set max_attempts = 2 where id = $1`, id)
	b.no(err)
	b.work(time.Millisecond)
	b.until(id, queue.StateFailed)
	if log := b.logged(); strings.Count(log, "alert dropped") != 1 || b.server.Tries() != 2 {
		t.Errorf("%d tries\n%s", b.server.Tries(), log)
	}
}

func TestTokenIsInNoErrorNorLogNorRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.AnswerWith(func(try int) *telegramtest.Answer {
		if try < 3 {
			return &telegramtest.Answer{Status: 200, Body: "you sent " + telegramtest.Token}
		}
		refusal := telegramtest.Refusal(401, telegramtest.Token, 0)
		return &refusal
	})
	id := b.tell(key(1))
	b.work(time.Millisecond)
	b.until(id, queue.StateFailed)
	rows, err := b.pool.Query(t.Context(), `select to_jsonb(jobs)::text from jobs union all select to_jsonb(latest)::text from latest`)
	b.no(err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.no(err)
	for _, text := range append(texts, b.logged()) {
		if strings.Contains(text, "AAF-a_token") {
			t.Error(text)
		}
	}
}

// Many workers on many hosts: each message waits for the one before, and then for the spacing.
func TestOneMessageASecondOverManyWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const messages, spacing = 6, 100 * time.Millisecond
	for n := range messages {
		a := key(n + 1)
		a.Code = a.Key // each for a reason of its own
		b.tell(a)
	}
	for range 3 {
		b.work(spacing)
	}
	queuetest.Until(t, "all are sent", func() bool { return len(b.server.Messages()) == messages })
	got := b.server.Messages()
	for n := 1; n < messages; n++ {
		if gap := got[n].At.Sub(got[n-1].At); gap < spacing {
			t.Errorf("message %d came after %s", n+1, gap)
		}
	}
}

func TestNewerAlertsAreReadAsFarAsTheyAreKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in := alert.Insert(telegram.Channel, key(1))
	in.Args = map[string]any{"kind": "task_blocked", "key": "1", "task": "demo-1", "mood": "bad", "at": "2026-01-02T03:04:05Z"}
	out, err := b.queue.Enqueue(t.Context(), in)
	b.no(err)
	in.Args, in.DedupeKey = "garbage", "2"
	broken, err := b.queue.Enqueue(t.Context(), in)
	b.no(err)
	b.work(time.Millisecond)
	b.until(out.ID, queue.StateSucceeded)
	if job := b.until(broken.ID, queue.StateFailed); *job.ErrorCode != queue.CodeBadArgs {
		t.Errorf("%s", *job.ErrorCode)
	}
	if text := b.server.Messages()[0].Text; !strings.Contains(text, "demo-1") || !strings.Contains(text, "2026-01-02 03:04 UTC") {
		t.Error(text)
	}
}

// A stop while a message waits for its turn costs nothing, and sends nothing.
func TestStopBeforeTheSendGivesTheAlertBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.tell(key(1))
	root := queuetest.Root(t, b.pool)
	me := queuetest.Worker(root)
	b.no(b.queue.RegisterWorker(t.Context(), me))
	leases, err := b.queue.Claim(t.Context(), queue.ClaimRequest{Worker: me, Lane: "system", Kinds: []string{telegram.Kind}, Limit: 1})
	b.no(err)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	leases[0].BeginStop()
	handler := telegram.NewHandler(telegram.HandlerConfig{Sender: newSender(t, b.server)})
	if err := handler.Run(t.Context(), leases[0]); !errors.Is(err, queue.ErrStopping) || b.server.Tries() > 0 {
		t.Errorf("%v, %d tries of job %d", err, b.server.Tries(), id)
	}
}
