package queue

import (
	"sync"

	"github.com/google/uuid"

	"orch/internal/queue/internal/due"
)

// grant names a lease among those of one worker.
type grant struct {
	id    int64
	epoch int
}

// holder is what this process knows of one worker id: the leases handed out and not settled, and the claims on their
// way. It decides which running rows are orphans, see doc.go.
type holder struct {
	mu       sync.Mutex
	leases   map[grant]*Lease
	nextSeq  uint64
	inFlight map[uint64]struct{}
	suspects map[grant]uint64    // row seen without a lease → newest claim that was started then
	views    map[string]due.View // by lane
	beat     beatConn
}

func (q *Queue) holder(worker uuid.UUID) *holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.holders[worker]
	if h == nil {
		h = &holder{leases: map[grant]*Lease{}, inFlight: map[uint64]struct{}{}, suspects: map[grant]uint64{}, views: map[string]due.View{}}
		q.holders[worker] = h
	}
	return h
}

// claimStarts is called before a claim is sent; the function it returns after its answer was read, or given up.
func (h *holder) claimStarts() (done func(leases []*Lease)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextSeq++
	seq := h.nextSeq
	h.inFlight[seq] = struct{}{}
	return func(leases []*Lease) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, l := range leases {
			h.leases[l.grant()] = l
		}
		delete(h.inFlight, seq)
	}
}

func (h *holder) remove(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases[l.grant()] == l {
		delete(h.leases, l.grant())
	}
}

// orphans picks, of the running rows that a beat just read, those that nothing in this process knows or will know.
func (h *holder) orphans(rows []grant) []grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := h.nextSeq + 1
	for seq := range h.inFlight {
		oldest = min(oldest, seq)
	}
	suspects := make(map[grant]uint64, len(rows))
	var orphans []grant
	for _, row := range rows {
		if _, held := h.leases[row]; held {
			continue
		}
		seq, seen := h.suspects[row]
		if !seen {
			seq = h.nextSeq
		}
		if seq < oldest {
			orphans = append(orphans, row)
			continue
		}
		suspects[row] = seq
	}
	h.suspects = suspects
	return orphans
}

// view returns what the claims of a lane know, for one that may change it.
func (h *holder) view(lane string) due.View {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.views[lane]
	return v.Clone()
}

func (h *holder) setView(lane string, v due.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.views[lane] = v
}
