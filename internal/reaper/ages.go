package reaper

import (
	"maps"
	"sync"
	"time"

	"orch/internal/queue"
)

// ages tell by the boot clock for how long jobs have gone on: the database's may have been set, and nobody's attempt is spent for
// that. They are kept in memory: a restart delays what a ceiling ends, and never hastens it.
type ages struct {
	clock func() int64

	mu            sync.Mutex
	before, found map[int64]age // by job
}

func newAges(clock func() int64) *ages {
	return &ages{clock: clock, before: map[int64]age{}, found: map[int64]age{}}
}

// age is when a job was first seen in what it does now.
type age struct {
	epoch int
	since time.Time // the database's moment, only compared
	at    int64
}

// atMost is for how long a job has gone on by both clocks: the shorter time.
func (a *ages) atMost(s queue.Seen) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	first := age{epoch: s.Epoch, since: s.Since, at: now}
	if known, ok := a.before[s.ID]; ok && known.epoch == s.Epoch && known.since.Equal(s.Since) {
		first.at = known.at
	}
	a.found[s.ID] = first
	return min(s.Elapsed, time.Duration(now-first.at))
}

// tick ends a tick, and forgets what it didn't find if it has looked at everything.
func (a *ages) tick(whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if whole {
		a.before = a.found
	} else {
		maps.Copy(a.before, a.found)
	}
	a.found = map[int64]age{}
}
