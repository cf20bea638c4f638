package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/alert"
	"orch/internal/alert/telegram/telegramtest"
	"orch/internal/db"
	"orch/internal/queue/queuetest"
)

// crowd enqueues alerts of n causes, in one night.
func (b *bench) crowd(n int, like alert.Alert) {
	b.t.Helper()
	b.no(db.InTx(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		for i := range n {
			a := like
			a.Key, a.Task, a.JobID = fmt.Sprintf("%s:%d", like.Code, i), fmt.Sprintf("app-%d", i+1), int64(1000+i)
			if err := b.outbox.EnqueueTx(b.t.Context(), tx, a); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (b *bench) count(where string, args ...any) (n int) {
	b.t.Helper()
	b.no(b.pool.QueryRow(b.t.Context(), `select count(*) from jobs where `+where, args...).Scan(&n))
	return n
}

// putOff waits until n alerts wait for a sum.
func (b *bench) putOff(n int) {
	b.t.Helper()
	queuetest.Until(b.t, "the others wait for a sum", func() bool { return b.count(`state = 'queued' and phase = $1`, alert.WaitingForSum) == n })
}

// later is a moment after the sum is due.
func (b *bench) later(minutes int) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `update alerts_told set at = at - make_interval(mins => $1)`, minutes)
	b.no(err)
	_, err = b.pool.Exec(b.t.Context(), `update jobs set run_at = run_at - make_interval(mins => $1) where state = 'queued'`, minutes)
	b.no(err)
}

func (b *bench) allTold() {
	b.t.Helper()
	queuetest.Until(b.t, "all are told", func() bool { return b.count(`state <> 'succeeded'`) == 0 })
}

func app(kind alert.Kind, code string) alert.Alert {
	return alert.Alert{Kind: kind, Repo: "app", Code: code}
}

// A person at 3 a.m. hears of the first at once, and of the others in one message.
func TestNightThatOneCauseBlocksIsFewMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const all = 60
	b.crowd(all, app(alert.TaskBlocked, "agent_failed"))
	for range 2 {
		b.work(time.Millisecond)
	}
	b.putOff(all - 3)
	if got := b.server.Messages(); len(got) != 3 || !strings.Contains(got[2].Text, "Task app-3 needs you") {
		t.Fatalf("%d messages, %+v", len(got), got)
	}
	if s := b.snapshot(); s.Pending != all-3 || s.Status != alert.StatusOK {
		t.Errorf("%+v", s)
	}
	b.tell(app(alert.TaskBlocked, "checkout_dirty")) // another cause doesn't wait
	queuetest.Until(t, "it is told", func() bool { return len(b.server.Messages()) == 4 })
	b.later(6)
	b.allTold()
	got := b.server.Messages()
	if len(got) != 5 {
		t.Fatalf("%d messages", len(got))
	}
	for _, want := range []string{
		"57 more tasks need you, each because its agent gave up, and no attempt is left.", "repository app: app-", "and 47 more",
		"code agent_failed", "`orch task list --state blocked`", "`orch task retry KEY`",
	} {
		if !strings.Contains(got[4].Text, want) {
			t.Errorf("no %q in\n%s", want, got[4].Text)
		}
	}

	if n := strings.Count(got[4].Text, "app-"); n != 10 {
		t.Errorf("%d are named", n)
	}

	// It goes on: the next sum comes half an hour after that one, with all there is.
	b.crowd(20, app(alert.TaskBlocked, "agent_failed"))
	b.putOff(20)
	b.later(31)
	b.allTold()
	if got := b.server.Messages(); len(got) != 6 || !strings.Contains(got[5].Text, "20 more tasks need you") {
		t.Errorf("%d messages, %s", len(got), got[len(got)-1].Text)
	}
	b.later(61) // and it is over
	b.tell(app(alert.TaskBlocked, "agent_failed"))
	b.allTold()
	if got := b.server.Messages(); len(got) != 7 || strings.Contains(got[6].Text, "more") {
		t.Errorf("%d messages, %s", len(got), got[len(got)-1].Text)
	}
}

// Whoever sent the sum died before that was written: all of it is told once more.
func TestSumWhoseSenderDiedIsToldAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.crowd(10, app(alert.TaskBlocked, "agent_failed"))
	b.work(time.Millisecond)
	b.putOff(7)
	b.server.AnswerWith(func(try int) *telegramtest.Answer {
		if try == 1 { // the message is taken, and meanwhile the job is taken from its worker
			_, err := b.pool.Exec(t.Context(), `update jobs set state = 'queued', epoch = epoch + 1, worker_id = null, lease_expires_at = null,
				heartbeat_at = null where state = 'running'`)
			if err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	b.later(6)
	b.allTold()
	got := b.server.Messages()
	if len(got) != 5 || got[3].Text != got[4].Text || !strings.Contains(got[4].Text, "7 more tasks need you") {
		t.Errorf("%d messages: %+v", len(got), got)
	}
}

// One that Telegram doesn't take costs none of those that would have been told with it.
func TestAlertThatIsRefusedTakesNoOtherAlong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const all, bad = 9, "app-6"
	b.server.TakeNone(bad)
	b.crowd(all, app(alert.TaskBlocked, "agent_failed"))
	b.work(time.Millisecond)
	b.putOff(all - 3)
	b.later(6)
	queuetest.Until(t, "all have ended", func() bool { return b.count(`state in ('queued', 'running')`) == 0 })
	var said strings.Builder
	for _, m := range b.server.Messages() {
		said.WriteString(m.Text)
	}
	for i := range all {
		if name := fmt.Sprintf("app-%d", i+1); strings.Contains(said.String(), name) != (name != bad) {
			t.Errorf("%s in\n%s", name, said.String())
		}
	}
	if n := b.count(`state = 'failed'`); n != 1 || b.count(`state = 'succeeded'`) != all-1 {
		t.Errorf("%d failed", n)
	}
}

// ORCH-065 FR-1.2: a person is told of each job that was reaped to failed.
func TestEachReapedJobIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const all = 150
	b.crowd(all, app(alert.JobReaped, "process_dead"))
	b.work(time.Millisecond)
	b.putOff(all - 3)
	b.later(6)
	b.allTold()
	var texts []string
	for _, m := range b.server.Messages() {
		texts = append(texts, m.Text)
	}
	said := strings.Join(texts, "\n")
	for i := range all {
		if name := fmt.Sprintf("(app-%d)", i+1); i >= 3 && !strings.Contains(said, name) || !strings.Contains(said, fmt.Sprintf("ob %d ", 1000+i)) {
			t.Errorf("job %d isn't named", 1000+i)
		}
	}
	if n := len(texts); n > 3+3 || !strings.Contains(said, "more jobs were reaped to failed, each because its process is gone.") {
		t.Errorf("%d messages", n)
	}
}

// The agent's pause and the task that it stopped have one cause: that is one message, with what both need.
func TestAgentThatIsntSignedInIsOneMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.no(db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := b.outbox.EnqueueTx(t.Context(), tx, alert.Alert{Kind: alert.AgentPaused, Key: "coder:auth:1", Agent: "coder", Code: "auth", Reason: alert.MeaningOfPause("auth")}); err != nil {
			return err
		}
		return b.outbox.EnqueueTx(t.Context(), tx, alert.Alert{Kind: alert.TaskBlocked, Key: "7:1", Task: "app-7", Repo: "app", Code: "auth"})
	}))
	b.work(time.Millisecond)
	b.allTold()
	got := b.server.Messages()
	if len(got) != 1 {
		t.Fatalf("%d messages: %+v", len(got), got)
	}
	for _, want := range []string{
		"Agent coder is paused for all tasks: it isn't signed in", "So 1 task needs you:\nrepository app: app-7", "Sign it in", "`orch resume --agent coder`",
		"And then, for each task: `orch task retry app-7`",
	} {
		if !strings.Contains(got[0].Text, want) {
			t.Errorf("no %q in\n%s", want, got[0].Text)
		}
	}
}

// A pause that ends by itself blocks nothing.
func TestTaskOfAnotherReasonIsToldByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tell(alert.Alert{Kind: alert.AgentPaused, Key: "coder:quota", Agent: "coder", Code: "quota"})
	b.tell(alert.Alert{Kind: alert.TaskBlocked, Key: "7:1", Task: "app-7", Repo: "app", Code: "quota"})
	b.work(time.Millisecond)
	b.allTold()
	if n := len(b.server.Messages()); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// What a person cancels while its sum is on the way is no matter of the sum's.
func TestCancelledAlertIsLeftCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.crowd(6, app(alert.TaskBlocked, "agent_failed"))
	b.work(time.Millisecond)
	b.putOff(3)
	var last int64
	b.server.AnswerWith(func(int) *telegramtest.Answer {
		if err := b.pool.QueryRow(t.Context(), `select max(id) from jobs where state = 'queued'`).Scan(&last); err != nil {
			t.Error(err)
		}
		if _, err := b.queue.Cancel(t.Context(), last); err != nil {
			t.Error(err)
		}
		return nil
	})
	b.later(6)
	queuetest.Until(t, "all have ended", func() bool { return b.count(`state in ('queued', 'running')`) == 0 })
	if n := b.count(`state = 'cancelled' and id = $1`, last); n != 1 || b.count(`state = 'succeeded'`) != 5 {
		t.Error("it isn't cancelled")
	}
}
