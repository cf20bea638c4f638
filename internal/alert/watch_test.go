package alert_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/alert"
)

// sky is what a watch sees, and what it says.
type sky struct {
	health alert.Health
	err    error
	broken error // of the channel
	tries  int
	told   []alert.Alert
	beats  int
	log    bytes.Buffer
}

// watch runs fn while a watch of the sky runs, whose clock is the test's.
func watch(t *testing.T, fn func(s *sky)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sky{health: alert.Health{Tried: time.Hour}}
		w := alert.NewWatch(alert.WatchConfig{
			Host: "host", Beat: func() { s.beats++ },
			Probe: func(context.Context) (alert.Health, error) { return s.health, s.err },
			Direct: func(_ context.Context, a alert.Alert) error {
				s.tries++
				if s.broken == nil {
					s.told = append(s.told, a)
				}
				return s.broken
			},
			Code:   func(err error) string { return "code_of_" + err.Error() },
			Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx, func() {}) }()
		fn(s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass lets time go by, and the watch with it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestStuckQueueIsToldDirectlyOnce(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		pass(6 * time.Minute)
		s.health.Overdue = 4 * time.Minute
		pass(time.Hour)
		if len(s.told) > 0 {
			t.Errorf("told too early: %+v", s.told)
		}
		s.health.Overdue = 6 * time.Minute
		pass(3 * time.Hour)
		if len(s.told) != 1 || s.told[0].Kind != alert.QueueStuck || s.told[0].Host != "host" || !strings.Contains(s.told[0].Text(1000), "6 minutes") {
			t.Errorf("%+v", s.told)
		}
		s.health.Overdue = 0
		pass(time.Minute)
		s.health.Overdue = 7 * time.Minute
		pass(time.Minute)
		if len(s.told) != 2 {
			t.Errorf("told %d times, it was well meanwhile", len(s.told))
		}
		if s.beats < 300 {
			t.Errorf("%d beats", s.beats)
		}
	})
}

// A crowd of alerts goes out one a second, and a channel that is away is tried in vain: both are no stuck queue.
func TestQueueThatSendsIsNotStuck(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		pass(6 * time.Minute)
		s.health = alert.Health{Overdue: time.Hour, Tried: time.Second}
		pass(time.Hour)
		if len(s.told) > 0 {
			t.Errorf("%+v", s.told)
		}
	})
}

func TestUnreachableDatabaseIsToldDirectlyOnce(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		pass(time.Minute)
		s.err = errors.New("x")
		pass(4 * time.Minute)
		s.err = nil
		pass(time.Minute)
		s.err = errors.New("y")
		pass(4 * time.Minute)
		if len(s.told) > 0 {
			t.Errorf("told of a short outage: %+v", s.told)
		}
		pass(3 * time.Hour)
		if len(s.told) != 1 || s.told[0].Kind != alert.DatabaseUnreachable || s.told[0].Code != "code_of_y" || !strings.Contains(s.told[0].Text(1000), "5 minutes") {
			t.Errorf("%+v", s.told)
		}
		// It is back, with alerts that nobody could send meanwhile: the workers get a moment for them.
		s.err, s.health = nil, alert.Health{Overdue: 3 * time.Hour, Tried: 3 * time.Hour}
		pass(4 * time.Minute)
		if len(s.told) != 1 {
			t.Errorf("%+v", s.told)
		}
		s.err = errors.New("z")
		pass(6 * time.Minute)
		if len(s.told) != 2 {
			t.Errorf("told %d times, it was well meanwhile", len(s.told))
		}
	})
}

func TestDirectAlertIsTriedUntilItIsSent(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		s.err, s.broken = errors.New("x"), errors.New("telegram_unreachable")
		pass(time.Hour)
		if s.tries < 100 || len(s.told) > 0 {
			t.Errorf("%d tries", s.tries)
		}
		if n := strings.Count(s.log.String(), "direct alert not sent"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		s.broken = nil
		pass(time.Hour)
		if len(s.told) != 1 {
			t.Errorf("%+v", s.told)
		}
	})
}

func TestPanicOfAProbeIsAMissedLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := alert.NewWatch(alert.WatchConfig{Probe: func(context.Context) (alert.Health, error) { looks++; panic("oops") }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.Run(ctx, func() {}); err != nil || looks < 100 {
			t.Errorf("%v after %d looks", err, looks)
		}
	})
}

func TestWithoutAChannelTheWatchLogsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := alert.NewWatch(alert.WatchConfig{
			Probe:  func(context.Context) (alert.Health, error) { return alert.Health{}, errors.New("x") },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.Run(ctx, func() {}); err != nil || strings.Count(log.String(), "database_unreachable") != 1 {
			t.Errorf("%v\n%s", err, &log)
		}
	})
}
