package reaper

import (
	"sync"

	"github.com/google/uuid"
)

// suspect is one kind of evidence against one grant of a job and its run.
type suspect struct {
	job    int64
	epoch  int
	run    uuid.UUID
	reason Reason // empty: it can't be judged
}

// suspects counts for how many ticks in a row evidence was found. What a tick doesn't find, for whatever reason, is forgotten
// at its end: alive, unknown and unseen all start the count again (ORCH-065 FR-1.3).
type suspects struct {
	mu     sync.Mutex
	before map[suspect]int
	found  map[suspect]int
	jobs   int // with any, at the last tick
}

// find counts evidence, once a tick.
func (s *suspects) find(key suspect) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found = map[suspect]int{}
	}
	if s.found[key] == 0 {
		s.found[key] = s.before[key] + 1
	}
	return s.found[key]
}

// tick ends a tick.
func (s *suspects) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.found = s.found, nil
	jobs := map[int64]bool{}
	for key := range s.before {
		jobs[key.job] = true
	}
	s.jobs = len(jobs)
}

// suspected is how many jobs there were at the last tick.
func (s *suspects) suspected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs
}
