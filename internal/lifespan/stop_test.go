package lifespan_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/lifespan"
)

func TestStopInterruptsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s := lifespan.New(lifespan.Config{},
			lifespan.Service{Name: "first", Stage: 1, Run: obedient(&j, "first")},
			lifespan.Service{Name: "never", Stage: 2, Run: func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }},
			lifespan.Service{Name: "last", Stage: 3, Run: obedient(&j, "last")},
		)
		stop := launch(s)
		synctest.Wait()
		if got := status(t, s, "last").State; got != lifespan.StateStarting {
			t.Errorf("waiting service is %q", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := j.all(); !slices.Equal(got, []string{"start first", "stop first"}) {
			t.Errorf("journal %q", got)
		}
		if got := status(t, s, "last").State; got != lifespan.StateStopped {
			t.Errorf("never started service is %q after the stop", got)
		}
	})
}

func TestOverrunIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var log logBuffer
		release := make(chan struct{})
		s := lifespan.New(lifespan.Config{Logger: log.logger()},
			lifespan.Service{Name: "base", Stage: 1, Run: obedient(&j, "base")},
			lifespan.Service{Name: "deaf", Stage: 2, StopTimeout: 3 * time.Second, Run: func(_ context.Context, ready func()) error {
				ready()
				<-release
				return nil
			}},
			lifespan.Service{Name: "default", Stage: 2, Run: func(_ context.Context, ready func()) error {
				ready()
				<-release
				return nil
			}},
		)
		stop := launch(s)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("the stop took %v, want the longer of the two deadlines", took)
		}
		if got := j.all(); !slices.Equal(got, []string{"start base", "stop base"}) {
			t.Errorf("journal %q", got)
		}
		if !strings.Contains(log.String(), `"service":"deaf"`) {
			t.Errorf("the one left behind isn't logged: %s", log.String())
		}
		close(release)
		synctest.Wait()
	})
}

func TestCauseOfTheStop(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]error{"plain": nil, "own": errBroken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			var seen error
			s := lifespan.New(lifespan.Config{}, lifespan.Service{Name: "one", Run: func(ctx context.Context, ready func()) error {
				ready()
				cancel(given)
				<-ctx.Done()
				seen = context.Cause(ctx)
				return nil
			}})
			if err := s.Run(ctx); err != nil {
				t.Fatal(err)
			}
			want := given
			if want == nil {
				want = lifespan.ErrStopping
			}
			if !errors.Is(seen, want) {
				t.Errorf("cause %v, want %v", seen, want)
			}
		})
	}
}

func TestLastWordsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		s := lifespan.New(lifespan.Config{Logger: log.logger()}, lifespan.Service{Name: "one", Run: func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			return errBroken
		}})
		stop := launch(s)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := log.String(); !strings.Contains(got, "service stopped with an error") {
			t.Errorf("log %s", got)
		}
	})
}

// TestStartStopStress stops supervisors at arbitrary moments of their start. Nothing may leak or run after Run.
func TestStartStopStress(t *testing.T) {
	t.Parallel()
	for round := range 300 {
		var alive atomic.Int64
		var services []lifespan.Service
		for i := range 8 {
			services = append(services, lifespan.Service{Name: strconv.Itoa(i), Stage: i / 2, Run: func(ctx context.Context, ready func()) error {
				alive.Add(1)
				defer alive.Add(-1)
				if i%3 == round%3 && ctx.Err() == nil && round%2 == 0 {
					ready()
					return errBroken
				}
				ready()
				<-ctx.Done()
				return nil
			}})
		}
		s := lifespan.New(lifespan.Config{BackoffMin: time.Microsecond, BackoffMax: time.Microsecond}, services...)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			for range round {
				s.Snapshot()
			}
			cancel(nil)
		}()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := alive.Load(); n != 0 {
			t.Fatalf("%d services run after Run returned", n)
		}
	}
}
