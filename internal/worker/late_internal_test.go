package worker

import (
	"testing"
	"time"

	"orch/internal/queue"
)

// A handler that was stopped together with its process couldn't mind that its lease is lost.
func TestHandlerHasItsTimeFromWhenItCouldAct(t *testing.T) {
	t.Parallel()
	const beat = 15 * time.Second
	for name, test := range map[string]struct {
		pauses []time.Duration // before each look; the lease is lost before the first
		told   int             // at which of them, from 1; 0 = at none
	}{
		"beats":                               {[]time.Duration{beat, beat, beat, beat, beat}, 3},
		"beats that are asked for":            {[]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}, 0},
		"slow beats":                          {[]time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second}, 3},
		"lost while it was stopped":           {[]time.Duration{time.Hour, time.Millisecond, time.Millisecond, beat, beat}, 5},
		"lost, then stopped":                  {[]time.Duration{beat, time.Hour, time.Millisecond, beat, beat}, 5},
		"lost, about to be told, stopped":     {[]time.Duration{beat, beat, time.Hour, beat, beat}, 5},
		"stopped for little more than a beat": {[]time.Duration{beat, 2 * beat, time.Millisecond, beat}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lease := &queue.Lease{}
			lease.MarkLost(nil)
			q := queue.New(nil, queue.Config{LeaseTTL: time.Minute, QueryTimeout: 10 * time.Second})
			s := &session{
				w: &Worker{cfg: Config{Queue: q, Heartbeat: beat}}, lateAt: time.Hour,
				jobs: map[*queue.Lease]*entry{lease: {beats: true}},
			}
			now, told := s.lateAt, 0
			for n, pause := range test.pauses {
				now += pause
				late := s.late(now)
				if len(late) > 0 && (late[0] != lease || told > 0) {
					t.Errorf("look %d: told again", n+1)
				}
				if len(late) > 0 {
					told = n + 1
				}
			}
			if told != test.told {
				t.Errorf("told at look %d, want %d", told, test.told)
			}
		})
	}
}
