package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitOfAJobIsDueOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := waits{logged: map[int64]time.Time{}}
		for hour := range 3 {
			if !w.due(1) {
				t.Errorf("hour %d: not due", hour)
			}
			time.Sleep(30 * time.Minute)
			if w.due(1) {
				t.Errorf("hour %d: due twice", hour)
			}
			if hour == 1 && !w.due(2) {
				t.Error("one job keeps another's back")
			}
			time.Sleep(30 * time.Minute)
		}
		if len(w.logged) > 2 {
			t.Errorf("%d jobs are remembered", len(w.logged))
		}
	})
}
