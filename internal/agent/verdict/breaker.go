// Package verdict keeps a broken look from being taken for a massacre.
//
// When more than half of the runs that haven't finished seem dead at once, and at least five, then it is likelier that
// this process looks wrongly than that all their shims died: the run directories lie on a disk that went away, or their
// lock files were replaced. Then the first three looks decide nothing and a person is told; every look after that
// decides about one run, so that a real mass death is cleared away too, slowly enough to be stopped. A look that finds
// nothing unusual ends it.
package verdict

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"orch/internal/process"
)

const (
	// least is how many must seem dead; of fewer it is believed.
	least = 5
	// undecided is how many looks decide nothing.
	undecided = 3
)

// Sight is what one look has found.
type Sight struct {
	// Dead of All runs seemed dead. Finished and pending runs tell nothing about the look, nor do those
	// of another boot or pid namespace.
	Dead, All int
	// Opened is set on the look that finds a mass death first, Closed on the first one that finds none any more.
	Opened, Closed bool
}

// Breaker stands between what runs seem to be and what is done about it. The zero value counts each look; it is for
// many goroutines.
type Breaker struct {
	// Every is the time between looks that count. Those who look in between, each for a run of its own, only find out
	// whether the mass death goes on.
	Every time.Duration

	mu     sync.Mutex
	open   bool
	looks  int
	last   time.Time
	chosen uuid.UUID // the one that this look decides about
	passed uuid.UUID // the one before, which others go before if it is still there
	sight  Sight
}

// Look takes in what all runs of this root that haven't been noted as ended seem to be; a run that was seen alive and
// whose directory is lost is dead.
func (b *Breaker) Look(now time.Time, runs map[uuid.UUID]process.State) Sight {
	seen := count(runs)
	mass := seen.Dead >= least && 2*seen.Dead > seen.All
	b.mu.Lock()
	defer b.mu.Unlock()
	seen.Opened, seen.Closed = mass && !b.open, !mass && b.open
	switch {
	case !mass:
		b.open, b.looks, b.chosen, b.passed = false, 0, uuid.Nil, uuid.Nil
	case !b.open:
		b.open, b.looks, b.last = true, 1, now
	case now.Sub(b.last) >= b.Every:
		b.looks++
		b.last, b.passed, b.chosen = now, b.chosen, uuid.Nil
	}
	b.sight = seen
	return seen
}

func count(runs map[uuid.UUID]process.State) Sight {
	var seen Sight
	for _, st := range runs {
		switch st.Status {
		case process.StatusDead:
			if !st.Interrupted {
				seen.Dead++
				seen.All++
			}
		case process.StatusAlive, process.StatusUnknown:
			seen.All++
		default:
		}
	}
	return seen
}

// Allow reports whether a run that seems dead may be taken for dead and what is left of it be ended. Of one look it is
// the same answer for a run however often it is asked.
func (b *Breaker) Allow(id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return true
	}
	if b.looks <= undecided {
		return false
	}
	if b.chosen == uuid.Nil && id != b.passed {
		b.chosen = id
	}
	return b.chosen == id
}

// Open gives the last look while a mass death goes on.
func (b *Breaker) Open() (Sight, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sight, b.open
}
