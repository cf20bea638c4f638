package verdict_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"orch/internal/agent/verdict"
	"orch/internal/process"
)

const every = 10 * time.Second

// world is what seems to be, and a clock.
type world struct {
	verdict.Breaker
	now  time.Time
	runs map[uuid.UUID]process.State
}

func newWorld(states map[process.Status]int) *world {
	w := &world{Breaker: verdict.Breaker{Every: every}, now: time.Unix(1e9, 0), runs: map[uuid.UUID]process.State{}}
	for status, n := range states {
		for range n {
			w.runs[uuid.New()] = process.State{Status: status}
		}
	}
	return w
}

// pass looks once and clears away each dead run that may be.
func (w *world) pass() (seen verdict.Sight, cleared int) {
	w.now = w.now.Add(every)
	seen = w.Look(w.now, w.runs)
	for id, st := range maps.Clone(w.runs) {
		if st.Status == process.StatusDead && w.Allow(id) && w.Allow(id) {
			delete(w.runs, id)
			cleared++
		}
	}
	return seen, cleared
}

func TestMassDeathDecidesNothingForThreePassesThenOneAPassAndClosesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusDead: 9, process.StatusAlive: 2})
	for pass, want := range []struct {
		cleared        int
		opened, closed bool
	}{{0, true, false}, {0, false, false}, {0, false, false}, {1, false, false}, {1, false, false}, {1, false, false}, {1, false, false}, {1, false, false}, {4, false, true}, {0, false, false}} {
		seen, cleared := w.pass()
		if cleared != want.cleared || seen.Opened != want.opened || seen.Closed != want.closed {
			t.Errorf("pass %d: %d cleared, %+v; want %+v", pass+1, cleared, seen, want)
		}
	}
	if sight, open := w.Open(); open || sight.Dead != 0 || sight.All != 2 {
		t.Errorf("%+v, open %v", sight, open)
	}
}

func TestLookThatWasBrokenHarmsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusDead: 8})
	for range 3 {
		if _, cleared := w.pass(); cleared > 0 {
			t.Fatalf("%d cleared", cleared)
		}
	}
	for id := range w.runs { // the disk is back
		w.runs[id] = process.State{Status: process.StatusAlive}
	}
	if seen, _ := w.pass(); !seen.Closed || len(w.runs) != 8 {
		t.Fatalf("%+v, %d left", seen, len(w.runs))
	}
	one := slices.Collect(maps.Keys(w.runs))[0]
	w.runs[one] = process.State{Status: process.StatusDead}
	if _, cleared := w.pass(); cleared != 1 {
		t.Error("one that died later wasn't cleared away")
	}
	for id := range w.runs {
		w.runs[id] = process.State{Status: process.StatusDead}
	}
	if seen, cleared := w.pass(); !seen.Opened || cleared > 0 {
		t.Errorf("second time: %+v, %d cleared", seen, cleared)
	}
}

func TestFewDeadAreNoMassDeath(t *testing.T) {
	t.Parallel()
	for name, states := range map[string]map[process.Status]int{
		"four of four":         {process.StatusDead: 4},
		"half":                 {process.StatusDead: 8, process.StatusAlive: 8},
		"half can't be judged": {process.StatusDead: 8, process.StatusUnknown: 8},
	} {
		w := newWorld(states)
		if _, cleared := w.pass(); cleared != states[process.StatusDead] {
			t.Errorf("%s: %d cleared", name, cleared)
		}
	}
}

func TestFinishedRunsDontHideAMassDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusDead: 5, process.StatusAlive: 4, process.StatusFinished: 20, process.StatusPending: 20, process.StatusForeign: 20})
	if seen, cleared := w.pass(); !seen.Opened || cleared > 0 || seen.All != 9 {
		t.Errorf("%+v, %d cleared", seen, cleared)
	}
}

func TestChangedBootIsNoMassDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusAlive: 1})
	for range 20 {
		w.runs[uuid.New()] = process.State{Status: process.StatusDead, Interrupted: true}
	}
	if seen, cleared := w.pass(); seen.Opened || cleared != 20 {
		t.Errorf("%+v, %d cleared", seen, cleared)
	}
}

func TestManyWhoLookAtOnceAreOneLook(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusDead: 10})
	allowed := map[uuid.UUID]bool{}
	for range 4 {
		w.now = w.now.Add(every)
		for id := range w.runs { // each follower for its own
			w.Look(w.now, w.runs)
			if w.Allow(id) {
				allowed[id] = true
			}
		}
	}
	if len(allowed) != 1 {
		t.Errorf("%d allowed after four looks", len(allowed))
	}
}

func TestOnlyAPassAtATimeIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(nil)
		add := func(status process.Status) { w.runs[uuid.New()] = process.State{Status: status} }
		quiet := 0 // looks since the mass death began
		for range rapid.IntRange(1, 60).Draw(t, "passes") {
			for range rapid.IntRange(0, 4).Draw(t, "new") {
				add(rapid.SampledFrom([]process.Status{process.StatusDead, process.StatusAlive, process.StatusUnknown, process.StatusFinished}).Draw(t, "status"))
			}
			dead, all := 0, 0
			for _, st := range w.runs {
				if st.Status == process.StatusDead {
					dead++
				}
				if st.Status != process.StatusFinished {
					all++
				}
			}
			mass := dead >= 5 && 2*dead > all
			want := dead
			if mass {
				quiet++
				want = min(1, max(0, quiet-3))
			} else {
				quiet = 0
			}
			if _, cleared := w.pass(); cleared != want {
				t.Fatalf("%d of %d dead, look %d of a mass death: %d cleared, want %d", dead, all, quiet, cleared, want)
			}
		}
	})
}
