package verdict_test

import (
	"testing"

	"github.com/google/uuid"

	"orch/internal/process"
)

// A run that can't be cleared away, since something of it can't be ended, doesn't keep the others from it.
func TestOneThatStaysDeadDoesNotStandInTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(map[process.Status]int{process.StatusDead: 8})
	var order []uuid.UUID
	for id := range w.runs {
		order = append(order, id)
	}
	for range 30 {
		w.now = w.now.Add(every)
		w.Look(w.now, w.runs)
		for i, id := range order { // always in this order, and the first can't be cleared away
			if _, there := w.runs[id]; there && w.Allow(id) && i > 0 {
				delete(w.runs, id)
			}
		}
	}
	if len(w.runs) != 1 {
		t.Errorf("%d are left", len(w.runs))
	}
}
