package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
)

// Rest postpones the next look of a lane's claims at everything, and says whether they go by their marks.
func Rest(q *Queue, w Worker, lane string, d time.Duration) bool {
	h := q.holder(w.ID)
	v := h.view(lane)
	if v.lookAt == 0 {
		return false
	}
	v.lookAt = clock.Boot() + d
	h.setView(lane, v)
	return true
}

// LookNow makes the next claim of a lane a look at everything.
func LookNow(q *Queue, w Worker, lane string) {
	h := q.holder(w.ID)
	v := h.view(lane)
	v.lookAt = 0
	h.setView(lane, v)
}

// Grant is the second half of a claim, for candidates that were found some time ago.
func Grant(ctx context.Context, q *Queue, req ClaimRequest, ids ...int64) (leases []*Lease, err error) {
	found := make([]candidate, 0, len(ids))
	for _, id := range ids {
		found = append(found, candidate{ID: id})
	}
	err = db.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		leases, err = q.grant(ctx, tx, req, found)
		return err
	})
	return leases, err
}
