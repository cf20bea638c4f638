// Package hostdead decides when the host of a data root may be given up, so that others do its work.
//
// A host is cut off, asleep, or gone: from outside that looks the same. What it runs ends by itself, because its shims end
// agents whose orch has had no contact with the database for some time (their orphan grace). A host is given up only
// after longer than that, counted twice, and both must agree: by the database's clock since the root was last seen, and by
// this process's own boot clock since it first found the root unchanged. The second count begins anew with every pass that
// failed or came late: while the database was away nobody could be seen, which says nothing about hosts.
package hostdead

import (
	"time"

	"github.com/google/uuid"
)

// Sighting is what the database says of a data root.
type Sighting struct {
	Root   uuid.UUID
	SeenAt time.Time     // by the database's clock: the last sign of life
	Age    time.Duration // of that, by the same clock
	Grace  time.Duration // the longest orphan grace of the root's runs; zero when it has none
}

// Config says how long is too long.
type Config struct {
	After  time.Duration // without a sign of life, at least
	Margin time.Duration // beyond a run's grace: its shim needs time to end it
	Every  time.Duration // pass after pass; one later than three times that begins anew
}

// Watch remembers what earlier passes saw. It isn't safe for concurrent use.
type Watch struct {
	cfg   Config
	last  time.Duration
	since map[uuid.UUID]seen
}

type seen struct {
	at    time.Time
	since time.Duration // boot clock of the pass that found it so first
}

// New makes a Watch that has seen nothing.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, since: map[uuid.UUID]seen{}} }

// Pass takes what one look at the database found, at a time of the boot clock, and returns the roots that are dead.
func (w *Watch) Pass(now time.Duration, all []Sighting) []uuid.UUID {
	if now-w.last > 3*w.cfg.Every {
		clear(w.since)
	}
	w.last = now
	var dead []uuid.UUID
	next := make(map[uuid.UUID]seen, len(all))
	for _, s := range all {
		known, ok := w.since[s.Root]
		if !ok || !known.at.Equal(s.SeenAt) {
			known = seen{at: s.SeenAt, since: now}
		}
		next[s.Root] = known
		after := max(w.cfg.After, s.Grace+w.cfg.Margin)
		if s.Age >= after && now-known.since >= after {
			dead = append(dead, s.Root)
		}
	}
	w.since = next
	return dead
}

// Failed says that a look came to nothing: all counts begin anew.
func (w *Watch) Failed() { clear(w.since) }
