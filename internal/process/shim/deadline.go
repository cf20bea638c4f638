package shim

import (
	"math"
	"time"

	"orch/internal/process"
)

const (
	// never is a moment that doesn't come.
	never = math.MaxInt64
	// limitedStall bounds the silence of a program that sleeps until a limit is over, for days if need be. It may also have
	// gone on since, and work on a long answer.
	limitedStall = 5 * time.Minute
	// late is how much after its moment a look tells that the machine slept.
	late = 10 * time.Second
	// wakePatience is how long orch has to get in contact again after that.
	wakePatience = 2 * time.Minute
)

// deadlines are the moments at which a run is to end. All are of CLOCK_BOOTTIME.
type deadlines struct {
	spec    process.Spec
	started int64
	// contact is the last known one of an orch with the database.
	contact int64
	// reprieve is until when a run goes on that has learnt of its being orphaned too late.
	reprieve int64
}

// heard is what the deadlines go by of what the program does.
type heard struct {
	output int64 // the last
	// tools means that the program waits for a tool of its own, limited that it sleeps until a limit is over.
	tools, limited bool
}

func newDeadlines(spec process.Spec, started int64) *deadlines {
	d := &deadlines{spec: spec, started: started, contact: spec.Contact}
	if d.contact == 0 {
		d.contact = started
	}
	return d
}

// next is the first moment to come and what it means.
func (d *deadlines) next(h heard) (at int64, why process.Why) {
	at, why = never, ""
	for _, one := range []struct {
		at  int64
		why process.Why
	}{{d.total(), process.WhyTimeout}, {d.stall(h), process.WhyStalled}, {d.orphan(), process.WhyOrphaned}} {
		if one.at < at {
			at, why = one.at, one.why
		}
	}
	return at, why
}

func (d *deadlines) total() int64 { return after(d.started, d.spec.Timeout) }

func (d *deadlines) stall(h heard) int64 {
	limit := d.spec.StallTimeout
	switch {
	case h.tools && d.spec.ToolStallTimeout > 0:
		limit = d.spec.ToolStallTimeout
	case h.tools:
	case h.limited && limit > 0:
		limit = min(limit, limitedStall)
	}
	return after(max(d.started, h.output), limit)
}

func (d *deadlines) orphan() int64 {
	if d.spec.OrphanGrace == 0 {
		return never
	}
	return max(after(d.contact, d.spec.OrphanGrace), d.reprieve)
}

// orphaned decides at the moment for it. Look gives the last contact that was noted; when it can't, the last known counts.
// Whoever comes late, as the machine slept, gives orch the time to get in contact again, but not past the end of the
// patience: then another host may have the job.
func (d *deadlines) orphaned(now int64, look func() (int64, error)) bool {
	due := d.orphan()
	if at, err := look(); err == nil && at > d.contact {
		d.contact, d.reprieve = min(at, now), 0
	}
	if now < d.orphan() {
		return false
	}
	if now-due > int64(late) {
		d.reprieve = min(now+int64(wakePatience), after(d.contact, d.spec.OrphanGrace+d.spec.OrphanPatience))
	}
	return now >= d.orphan()
}

// after is never for a limit that is none.
func after(moment int64, limit time.Duration) int64 {
	if limit == 0 || moment > never-int64(limit) {
		return never
	}
	return moment + int64(limit)
}
