package launch

import (
	"context"
	"slices"
	"sync"

	"orch/internal/process"
)

// Shims are those that this process started and that may still be there: one outlives its run by a moment.
type Shims struct {
	mu     sync.Mutex
	living []*process.Run
}

// Add takes one in.
func (s *Shims) Add(shim *process.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living = slices.DeleteFunc(s.living, func(r *process.Run) bool {
		select {
		case <-r.ShimGone():
			return true
		default:
			return false
		}
	})
	s.living = append(s.living, shim)
}

// Wait returns when the last one has gone, or at the end of ctx.
func (s *Shims) Wait(ctx context.Context) {
	s.mu.Lock()
	living := slices.Clone(s.living)
	s.mu.Unlock()
	for _, shim := range living {
		select {
		case <-shim.ShimGone():
		case <-ctx.Done():
			return
		}
	}
}
