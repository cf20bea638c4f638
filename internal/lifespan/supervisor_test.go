package lifespan_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/lifespan"
)

var errBroken = errors.New("broken")

func TestStagesStartInOrderAndStopInReverse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := lifespan.New(lifespan.Config{},
			lifespan.Service{Name: "http", Stage: 3, Run: obedient(&j, "http")},
			lifespan.Service{Name: "off", Stage: 2, Run: obedient(&j, "off"), Disabled: true},
			lifespan.Service{Name: "worker", Stage: 2, Run: obedient(&j, "worker")},
			lifespan.Service{Name: "database", Stage: 1, Run: obedient(&j, "database")},
		)
		stop := launch(s)
		synctest.Wait()
		if got := status(t, s, "off"); got.State != lifespan.StateDisabled || got.Enabled {
			t.Errorf("disabled service: %+v", got)
		}
		if got := status(t, s, "http"); got.State != lifespan.StateReady || !got.Enabled {
			t.Errorf("running service: %+v", got)
		}
		if err := stop(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		want := []string{"start database", "start worker", "start http", "stop http", "stop worker", "stop database"}
		if got := j.all(); !slices.Equal(got, want) {
			t.Errorf("order %q, want %q", got, want)
		}
		if got := status(t, s, "http").State; got != lifespan.StateStopped {
			t.Errorf("state after stop %q", got)
		}
	})
}

func TestNextStageWaitsForReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		gate := make(chan struct{})
		s := lifespan.New(lifespan.Config{},
			lifespan.Service{Name: "slow", Stage: 1, Run: func(ctx context.Context, ready func()) error {
				select {
				case <-gate:
					ready()
				case <-ctx.Done():
				}
				<-ctx.Done()
				return nil
			}},
			lifespan.Service{Name: "next", Stage: 2, Run: obedient(&j, "next")},
		)
		stop := launch(s)
		time.Sleep(time.Hour)
		if got := j.all(); len(got) != 0 {
			t.Errorf("started before its predecessor was ready: %q", got)
		}
		close(gate)
		synctest.Wait()
		if got := j.all(); !slices.Equal(got, []string{"start next"}) {
			t.Errorf("after ready: %q", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A daemon that panics before it is ready, in each of its lives, keeps nobody from starting.
func TestDaemonThatIsNeverReadyHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := lifespan.New(lifespan.Config{Logger: slog.New(slog.DiscardHandler)},
			lifespan.Service{Name: "daemon", Stage: 1, Run: func(context.Context, func()) error { panic("at once") }},
			lifespan.Service{Name: "http", Stage: 2, Run: obedient(&j, "http")},
		)
		stop := launch(s)
		synctest.Wait()
		if got := j.all(); !slices.Equal(got, []string{"start http"}) {
			t.Errorf("started %q", got)
		}
		time.Sleep(time.Hour)
		if got := status(t, s, "daemon"); got.Restarts < 60 || got.LastError != "panic" || status(t, s, "http").Restarts != 0 {
			t.Errorf("status %+v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRestartBacksOffAndForgives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var lives []time.Duration
		healthy := time.Duration(0)
		var log logBuffer
		s := lifespan.New(lifespan.Config{Logger: log.logger(), BackoffMin: time.Second, BackoffMax: 4 * time.Second, HealthyAfter: time.Minute},
			lifespan.Service{Name: "flaky", Run: func(ctx context.Context, ready func()) error {
				lives = append(lives, time.Since(begin))
				ready()
				switch len(lives) {
				case 2:
					panic("boom")
				case 3:
					return nil
				case 5:
					healthy = time.Minute
				case 7:
					<-ctx.Done()
					return nil
				}
				time.Sleep(healthy)
				healthy = 0
				return errBroken
			}},
		)
		stop := launch(s)
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		// Pauses 1, 2, 4, 4 (the cap), then a minute of health and the smallest pause again, then 2.
		var want []time.Duration
		for _, second := range []int{0, 1, 3, 7, 11, 72, 74} {
			want = append(want, time.Duration(second)*time.Second)
		}
		if !slices.Equal(lives, want) {
			t.Errorf("lives began at %v, want %v", lives, want)
		}
		if got := status(t, s, "flaky"); got.Restarts != 6 || got.LastError != "internal" {
			t.Errorf("status %+v", got)
		}
		if got := log.String(); !strings.Contains(got, "supervisor_test.go") || !strings.Contains(got, `"code":"panic"`) ||
			!strings.Contains(got, `"code":"returned"`) {
			t.Errorf("the log lacks a stack or a code: %s", got)
		}
	})
}

func TestSiblingsSurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := lifespan.New(lifespan.Config{Code: func(error) string { return "flood" }},
			lifespan.Service{Name: "bad", Run: func(_ context.Context, ready func()) error { ready(); return errBroken }},
			lifespan.Service{Name: "good", Run: obedient(&j, "good")},
		)
		stop := launch(s)
		time.Sleep(24*time.Hour + time.Millisecond)
		bad, good := status(t, s, "bad"), status(t, s, "good")
		if bad.Restarts < 1000 || bad.State != lifespan.StateBackoff || bad.LastError != "flood" {
			t.Errorf("bad: %+v", bad)
		}
		if good.Restarts != 0 || good.State != lifespan.StateReady {
			t.Errorf("good: %+v", good)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestEssentialEndsTheLifespan(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("before_ready=%v", early), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				s := lifespan.New(lifespan.Config{},
					lifespan.Service{Name: "base", Stage: 1, Run: obedient(&j, "base")},
					lifespan.Service{Name: "http", Stage: 2, Essential: true, Run: func(_ context.Context, ready func()) error {
						if !early {
							ready()
							time.Sleep(time.Minute)
						}
						return errBroken
					}},
				)
				err := s.Run(t.Context())
				if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "service http") {
					t.Errorf("Run = %v", err)
				}
				if got := j.all(); !slices.Equal(got, []string{"start base", "stop base"}) {
					t.Errorf("journal %q", got)
				}
			})
		})
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := lifespan.New(lifespan.Config{}, lifespan.Service{Name: "daemon", Interval: 6 * time.Second, Run: obedient(&j, "daemon")})
		stop := launch(s)
		check := func(after time.Duration, want lifespan.State) {
			t.Helper()
			time.Sleep(after)
			if got := status(t, s, "daemon").State; got != want {
				t.Errorf("state %q, want %q", got, want)
			}
		}
		check(time.Minute, lifespan.StateReady)
		check(time.Second, lifespan.StateStale)
		s.Beat("daemon")
		s.Beat("somebody else")
		check(0, lifespan.StateReady)
		check(time.Minute+1, lifespan.StateStale)
		if err := stop(); err != nil {
			t.Error(err)
		}
		check(time.Hour, lifespan.StateStopped)
	})
}

// A goroutine that exits is one more way to end, and OnRestart hears of each, even when it panics itself.
func TestExitOfTheGoroutineIsAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := lifespan.New(lifespan.Config{
			Logger: slog.New(slog.DiscardHandler),
			OnRestart: func(_ context.Context, service string, restarts int, code string) {
				told = append(told, fmt.Sprintf("%s %d %s", service, restarts, code))
				panic("nobody may mind")
			},
		}, lifespan.Service{Name: "daemon", Run: func(_ context.Context, ready func()) error {
			ready()
			runtime.Goexit()
			return nil
		}})
		stop := launch(s)
		time.Sleep(4 * time.Second) // lives at 0, 1 and 3 seconds
		if got := status(t, s, "daemon"); got.Restarts != 2 || got.LastError != "exited" || got.State != lifespan.StateBackoff {
			t.Errorf("status %+v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if want := []string{"daemon 1 exited", "daemon 2 exited"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestUnusableServices(t *testing.T) {
	t.Parallel()
	var j journal
	for name, services := range map[string][]lifespan.Service{
		"no name":     {{Run: obedient(&j, "")}},
		"no function": {{Name: "a"}},
		"twice":       {{Name: "a", Run: obedient(&j, "a")}, {Name: "a", Run: obedient(&j, "a")}},
	} {
		if err := lifespan.New(lifespan.Config{}, services...).Run(t.Context()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	s := lifespan.New(lifespan.Config{})
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Run(ctx); err == nil {
		t.Error("ran twice")
	}
	if got := j.all(); len(got) != 0 {
		t.Errorf("something was started: %q", got)
	}
}
