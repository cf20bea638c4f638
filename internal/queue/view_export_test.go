package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
	"orch/internal/queue/internal/due"
)

// Rest postpones the next look of a lane's claims at everything, and says whether they go by their marks.
func Rest(q *Queue, w Worker, lane string, d time.Duration) bool {
	h := q.holder(w.ID)
	v := h.view(lane)
	if v.LookAt == 0 {
		return false
	}
	v.LookAt = clock.Boot() + d
	h.setView(lane, v)
	return true
}

// LookNow makes the next claim of a lane a look at everything.
func LookNow(q *Queue, w Worker, lane string) {
	h := q.holder(w.ID)
	v := h.view(lane)
	v.LookAt = 0
	h.setView(lane, v)
}

// Grant is the second half of a claim, for due.Candidates that were found some time ago.
func Grant(ctx context.Context, q *Queue, req ClaimRequest, ids ...int64) (leases []*Lease, err error) {
	found := make([]due.Candidate, 0, len(ids))
	for _, id := range ids {
		found = append(found, due.Candidate{ID: id})
	}
	err = db.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		leases, err = q.grant(ctx, tx, req, found)
		return err
	})
	return leases, err
}
