package alert_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/alert"
)

// sky is what a watch sees, and what it says. It is the test's, but for the time that passes.
type sky struct {
	mu     sync.Mutex
	health alert.Health
	err    error
	broken error // of the channel
	tries  int
	told   []alert.Alert
	beats  int
	log    bytes.Buffer
}

// Write is the log.
func (s *sky) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

// watch runs fn while a watch of the sky runs, whose clock is the test's.
func watch(t *testing.T, fn func(s *sky)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sky{health: alert.Health{Tried: time.Hour}}
		w := alert.NewWatch(alert.WatchConfig{
			Host: "host", Beat: func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.beats++
			},
			Probe: func(context.Context) (alert.Health, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.health, s.err
			},
			Direct: func(_ context.Context, a alert.Alert) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.tries++
				if s.broken == nil {
					s.told = append(s.told, a)
				}
				return s.broken
			},
			Code:   func(err error) string { return "code_of_" + err.Error() },
			Logger: slog.New(slog.NewTextHandler(s, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		s.mu.Lock()
		go func() { done <- w.Run(ctx, func() {}) }()
		fn(s)
		s.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass lets time go by, and the watch with it.
func (s *sky) pass(d time.Duration) {
	s.mu.Unlock()
	defer s.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

func TestStuckQueueIsToldDirectlyOnce(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		s.pass(6 * time.Minute)
		s.health.Overdue = 4 * time.Minute
		s.pass(time.Hour)
		if len(s.told) > 0 {
			t.Errorf("told too early: %+v", s.told)
		}
		s.health.Overdue = 6 * time.Minute
		s.pass(3 * time.Hour)
		if len(s.told) != 1 || s.told[0].Kind != alert.QueueStuck || s.told[0].Host != "host" || !strings.Contains(s.told[0].Text(1000), "6 minutes") {
			t.Errorf("%+v", s.told)
		}
		s.health.Overdue = 0
		s.pass(time.Minute)
		s.health.Overdue = 7 * time.Minute
		s.pass(time.Minute)
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
		s.pass(6 * time.Minute)
		s.health = alert.Health{Overdue: time.Hour, Tried: time.Second}
		s.pass(time.Hour)
		if len(s.told) > 0 {
			t.Errorf("%+v", s.told)
		}
	})
}

func TestUnreachableDatabaseIsToldDirectlyOnce(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		s.pass(time.Minute)
		s.err = errors.New("x")
		s.pass(4 * time.Minute)
		s.err = nil
		s.pass(time.Minute)
		s.err = errors.New("y")
		s.pass(4 * time.Minute)
		if len(s.told) > 0 {
			t.Errorf("told of a short outage: %+v", s.told)
		}
		s.pass(3 * time.Hour)
		if len(s.told) != 1 || s.told[0].Kind != alert.DatabaseUnreachable || s.told[0].Code != "code_of_y" || !strings.Contains(s.told[0].Text(1000), "5 minutes") {
			t.Errorf("%+v", s.told)
		}
		// It is back, with alerts that nobody could send meanwhile: the workers get a moment for them.
		s.err, s.health = nil, alert.Health{Overdue: 3 * time.Hour, Tried: 3 * time.Hour}
		s.pass(4 * time.Minute)
		if len(s.told) != 1 {
			t.Errorf("%+v", s.told)
		}
		s.err = errors.New("z")
		s.pass(6 * time.Minute)
		if len(s.told) != 2 {
			t.Errorf("told %d times, it was well meanwhile", len(s.told))
		}
	})
}

func TestDirectAlertIsTriedUntilItIsSent(t *testing.T) {
	t.Parallel()
	watch(t, func(s *sky) {
		s.err, s.broken = errors.New("x"), errors.New("telegram_unreachable")
		s.pass(time.Hour)
		if s.tries < 100 || len(s.told) > 0 {
			t.Errorf("%d tries", s.tries)
		}
		if n := strings.Count(s.log.String(), "direct alert not sent"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		s.broken = nil
		s.pass(time.Hour)
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
