package view

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"orch/api"
	"orch/internal/lifespan"
	"orch/internal/queue/tally"
	"orch/internal/reaper"
	"orch/internal/reconcile"
)

// Daemon is a service that looks at something again and again.
type Daemon struct {
	Interval time.Duration
	Status   func() lifespan.Status
	// Looked says when its last pass ended, and the code of what went wrong with it. nil: it never looks.
	Looked func() (last time.Time, code string)
}

// Reaper is the daemon that takes jobs from dead workers.
type Reaper struct {
	Daemon

	DeadTicks  int
	MaxRunning func(context.Context) time.Duration
	Suspects   func() int
}

func (a Snapshot) fillDaemons(ctx context.Context, q *api.Queue) error {
	totals, err := a.Tally.Counters(ctx)
	if err != nil {
		return err
	}
	latest, err := a.Tally.Latest(ctx)
	if err != nil {
		return err
	}
	r, c := &q.Reaper, &q.Reconcile
	status, last := a.Reaper.shown()
	r.Enabled, r.Status, r.Restarts, r.LastError, r.LastRunTS = status.Enabled, statusOf(status.State), int64(status.Restarts), last.code, last.at
	r.IntervalS, r.DeadTicks, r.MaxRunningS = a.Reaper.Interval.Seconds(), a.Reaper.DeadTicks, a.Reaper.MaxRunning(ctx).Seconds()
	r.ReapedTotal, r.Suspects = totals[reaper.CounterReaped], int64(a.Reaper.Suspects())
	if r.LastReaped, err = newest[api.QueueReaped](latest, reaper.LatestReaped); err != nil {
		return err
	}
	if r.LastReaped != nil {
		r.LastReaped.At = latest[reaper.LatestReaped].At.UTC()
	}
	status, last = a.Reconcile.shown()
	c.Enabled, c.Status, c.Restarts, c.LastError, c.LastRunTS = status.Enabled, statusOf(status.State), int64(status.Restarts), last.code, last.at
	c.IntervalS, c.RepairedTotal = a.Reconcile.Interval.Seconds(), totals[reconcile.CounterRepaired]
	if c.LastRepaired, err = newest[api.QueueRepaired](latest, reconcile.LatestRepaired); err != nil {
		return err
	}
	if c.LastRepaired != nil {
		c.LastRepaired.At = latest[reconcile.LatestRepaired].At.UTC()
	}
	q.Alerts, err = a.Alerts(ctx)
	return err
}

// pass is the last one of a daemon.
type pass struct {
	at   *time.Time
	code *string
}

// shown is a daemon in the API's words: a pass that failed says more than what ended the service at some time before.
func (d Daemon) shown() (lifespan.Status, pass) {
	status := d.Status()
	last := pass{code: orNil(status.LastError)}
	if d.Looked != nil {
		at, code := d.Looked()
		last.at = orNil(at.UTC())
		if code != "" {
			last.code = &code
		}
	}
	return status, last
}

// newest is what happened last, nil when nothing has.
func newest[T any](latest map[string]tally.Newest, name string) (*T, error) {
	kept, ok := latest[name]
	if !ok {
		return nil, nil //nolint:nilnil // nothing is an answer
	}
	value := new(T)
	if err := json.Unmarshal(kept.Data, value); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

// statusOf is the supervisor's word for a service in the API's words.
func statusOf(state lifespan.State) string {
	switch state {
	case lifespan.StateReady:
		return statusOK
	case lifespan.StateDisabled:
		return statusOff
	default:
		return string(state)
	}
}
