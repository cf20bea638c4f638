package worker

import (
	"sync/atomic"

	"orch/internal/queue"
)

// Stats counts what this worker did since its process started. They hold no payload.
type Stats struct {
	Claimed   int64 `json:"claimed"`
	Succeeded int64 `json:"succeeded"`
	Retried   int64 `json:"retried"`
	Cancelled int64 `json:"cancelled"`
	Failed    int64 `json:"failed"`
	Lost      int64 `json:"lost"`
	Released  int64 `json:"released"` // snoozed ones included
	Reaped    int64 `json:"reaped"`
	Errors    int64 `json:"errors"` // calls of the database that failed
}

type counters struct {
	claimed, succeeded, retried, cancelled, failed, lost, released, reaped, errors atomic.Int64
}

// Stats returns the counters.
func (w *Worker) Stats() Stats {
	c := &w.stats
	return Stats{
		Claimed: c.claimed.Load(), Succeeded: c.succeeded.Load(), Retried: c.retried.Load(), Cancelled: c.cancelled.Load(),
		Failed: c.failed.Load(), Lost: c.lost.Load(), Released: c.released.Load(), Reaped: c.reaped.Load(), Errors: c.errors.Load(),
	}
}

// CountError adds a call of the database that failed outside of the worker's own, such as the tick's.
func (w *Worker) CountError() { w.stats.errors.Add(1) }

// CountReaped adds jobs that the reaper of this process released or failed.
func (w *Worker) CountReaped(n int) { w.stats.reaped.Add(int64(n)) }

func (c *counters) count(o queue.Outcome) {
	switch o {
	case queue.OutcomeSucceeded:
		c.succeeded.Add(1)
	case queue.OutcomeFailed:
		c.failed.Add(1)
	case queue.OutcomeCancelled:
		c.cancelled.Add(1)
	case queue.OutcomeRetried:
		c.retried.Add(1)
	case queue.OutcomeReleased:
		c.released.Add(1)
	}
}
