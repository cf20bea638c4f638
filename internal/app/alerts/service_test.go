package alerts_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"orch/internal/alert"
	"orch/internal/app/alerts"
	"orch/internal/queue"
)

func TestServiceThatEndsAgainAndAgainIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.alerts.ServiceRestarted(t.Context(), "listener", 1, "returned")
	for n := range 2 {
		b.alerts.ServiceRestarted(t.Context(), "reaper", n+1, "panic")
	}
	if told := b.told(); len(told) > 0 {
		t.Fatalf("%+v", told)
	}
	for n := range 5 {
		b.alerts.ServiceRestarted(t.Context(), "reaper", n+3, "panic")
	}
	if a := b.one(alert.DaemonRestarts); a.Host != "host" || a.Code != "panic" || !strings.Contains(a.Reason, "reaper was started again 3 times") {
		t.Errorf("%+v", a)
	}
	if len(b.direct) > 0 {
		t.Errorf("and directly: %+v", b.direct)
	}
}

func TestMassDeathIsToldOnceAnHour(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.alerts.MassDeath(t.Context(), 8, 9)
	b.alerts.MassDeath(t.Context(), 7, 9)
	if a := b.one(alert.MassDeath); !strings.Contains(a.Text(alert.MaxText), "8 of 9") {
		t.Errorf("%+v", a)
	}
}

func TestWhatCantBeEnqueuedIsToldDirectlyAndOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pool.Close()
	for range 3 {
		b.alerts.MassDeath(t.Context(), 8, 9)
	}
	if len(b.direct) != 1 || b.direct[0].Kind != alert.MassDeath {
		t.Errorf("%+v", b.direct)
	}
	b.alerts.JobWaits(t.Context(), queue.Job{ID: 1, WaitingSince: new(time.Time)}, "x", time.Hour)
	if !strings.Contains(b.log.String(), "alert not enqueued") {
		t.Error(&b.log)
	}
}

func TestWhatCantBeToldIsLogged(t *testing.T) {
	t.Parallel()
	none := newBench(t, func(c *alerts.Config) { c.Direct = nil })
	none.pool.Close()
	none.alerts.MassDeath(t.Context(), 8, 9)
	broken := newBench(t, func(c *alerts.Config) {
		c.Direct = func(context.Context, alert.Alert) error { return errors.New("telegram_unreachable") }
	})
	broken.pool.Close()
	for range 2 {
		broken.alerts.MassDeath(t.Context(), 8, 9)
	}
	if !strings.Contains(none.log.String(), "mass_death") || strings.Count(broken.log.String(), "telegram_unreachable") != 2 {
		t.Errorf("%s\n%s", &none.log, &broken.log)
	}
}
