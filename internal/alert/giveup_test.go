package alert_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/alert"
	"orch/internal/queue"
	"orch/internal/queue/overview"
)

// without is the outbox of a process from which the channel was taken away.
func (b *bench) without() *alert.Outbox {
	b.t.Helper()
	return alert.NewOutbox(alert.Config{Pool: b.pool, Known: []string{"telegram"}, Logger: slog.New(slog.NewTextHandler(&b.log, nil))})
}

func (b *bench) exec(sql string) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql)
	b.no(err)
}

// A channel is taken out of the configuration while alerts wait: they are counted until they are given up, and told in the log.
func TestAlertsOfAChannelThatIsGoneHaveAnEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, "telegram")
	for _, key := range []string{"1", "2", "3"} {
		b.tell(alert.Alert{Kind: alert.TaskBlocked, Key: key, Task: "app-" + key, Code: "agent_failed"})
	}
	gone := b.without()
	pending := func(want int64) {
		t.Helper()
		s, err := gone.Snapshot(t.Context())
		b.no(err)
		if s != (alert.Snapshot{Channel: alert.ChannelNone, Status: alert.StatusOff, Pending: want}) {
			t.Errorf("%+v, want %d", s, want)
		}
	}
	pending(3)
	b.no(gone.GiveUp(t.Context())) // another process may have it
	pending(3)
	b.exec(`update jobs set run_at = run_at - interval '25 hours' where id <> (select max(id) from jobs)`)
	b.exec(`insert into latest (name, at, data) values ('alert.telegram', now() - interval '2 hours', '{}')`) // one has: it was just tried
	b.no(gone.GiveUp(t.Context()))
	b.no(b.outbox.GiveUp(t.Context())) // who has the channel gives up nothing
	pending(3)
	b.exec(`update latest set at = now() - interval '2 days'`)
	b.no(b.outbox.GiveUp(t.Context()))
	pending(3)
	b.no(gone.GiveUp(t.Context()))
	b.no(gone.GiveUp(t.Context()))
	pending(1)
	log := b.log.String()
	if strings.Count(log, "alerts given up") != 1 || !strings.Contains(log, "alerts=2") || strings.Count(log, "task=app-1") != 1 || strings.Contains(log, "task=app-3") {
		t.Error(log)
	}
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	if census.Counts[queue.StateCancelled] != 2 || census.Counts[queue.StateQueued] != 1 {
		t.Errorf("%+v", census.Counts)
	}
}

func TestWatchGivesUpOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		looks := 0
		w := alert.NewWatch(alert.WatchConfig{
			Probe:  func(context.Context) (alert.Health, error) { return alert.Health{}, nil },
			GiveUp: func(context.Context) error { looks++; return errors.New("no") },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Minute)
		defer cancel()
		if err := w.Run(ctx, func() {}); err != nil || looks > 0 {
			t.Fatalf("%v, %d looks within the first hour", err, looks)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Hour+time.Minute)
		defer cancel()
		if err := w.Run(ctx, func() {}); err != nil || looks != 10 || !strings.Contains(log.String(), "aren't given up yet") {
			t.Errorf("%v, %d looks, %s", err, looks, &log)
		}
	})
}
