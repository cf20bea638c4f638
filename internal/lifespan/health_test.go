package lifespan_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/lifespan"
)

func TestLastErrorIsForgivenAfterHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		panicsOnce := func() lifespan.Func {
			lives := 0
			return func(ctx context.Context, ready func()) error {
				ready()
				if lives++; lives == 1 {
					panic("boom")
				}
				<-ctx.Done()
				return nil
			}
		}
		s := lifespan.New(lifespan.Config{},
			lifespan.Service{Name: "quiet", Run: panicsOnce()},
			lifespan.Service{Name: "beating", Run: panicsOnce(), Interval: time.Minute},
			lifespan.Service{Name: "hung", Run: panicsOnce(), Interval: time.Minute},
		)
		stop := launch(s)
		shown := func(when, quiet, beating, hung string) {
			t.Helper()
			for name, want := range map[string]string{"quiet": quiet, "beating": beating, "hung": hung} {
				if got := status(t, s, name); got.LastError != want || got.Restarts != 1 {
					t.Errorf("%s, %s: %+v, want last error %q", name, when, got, want)
				}
			}
		}
		time.Sleep(5 * time.Minute) // a second of which was the pause
		s.Beat("beating")
		shown("before", "panic", "panic", "panic")
		time.Sleep(2 * time.Second)
		shown("without a beat since", "", "panic", "panic")
		s.Beat("beating")
		shown("after", "", "", "panic")
		time.Sleep(time.Hour)
		shown("later", "", "", "panic")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
