package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
)

// ErrLost says that the merge lease isn't this holder's any more: it was taken over after it expired, or reclaimed.
// The job's own lease may still hold.
var ErrLost = errors.New("merge lease lost")

// Right is the held right to land on one target branch: a merge lease under one epoch, for one grant of a job.
type Right struct {
	store        *Store
	job          *queue.Lease
	repo, target string
	attempt      int64 // whose turn it is
	epoch        int64
}

// Epoch is the lease's epoch: one more at each grant.
func (r *Right) Epoch() int64 { return r.epoch }

// FenceTx locks the lease's row and refuses unless it is still this holder's. The caller's transaction has locked
// the job's row already (queue.Lease.Tx).
func (r *Right) FenceTx(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `select from merge_leases
		where repo = $1 and target = $2 and epoch = $3 and job_id = $4 and job_epoch = $5 for update`,
		r.repo, r.target, r.epoch, r.job.Job().ID, r.job.Job().Epoch)
	if err != nil {
		return fmt.Errorf("lock merge lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

// Renew puts the lease's end off, and doubles as the check before an effect outside the database. It needs the
// lease's epoch and a job that runs under its own epoch: a hung holder whose job was reaped can't go on for ever.
func (r *Right) Renew(ctx context.Context) error {
	tag, err := r.store.pool.Exec(ctx, `
		update merge_leases set renewed_at = clock_timestamp()
		where repo = $1 and target = $2 and epoch = $3 and job_id = $4 and job_epoch = $5
			and exists (select from jobs where id = $4 and state = 'running' and epoch = $5)`,
		r.repo, r.target, r.epoch, r.job.Job().ID, r.job.Job().Epoch)
	if err != nil {
		return fmt.Errorf("renew merge lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

// RaiseTx lifts the lease's epoch above one that was seen elsewhere: what is bound to epochs outlasts a database that was
// restored from an older copy. The right is lost by that; the next grant is above it.
func (r *Right) RaiseTx(ctx context.Context, tx pgx.Tx, above int64) error {
	if err := r.FenceTx(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `update merge_leases set epoch = greatest(epoch, $3) + 1 where repo = $1 and target = $2`, r.repo, r.target, above)
	if err != nil {
		return fmt.Errorf("raise the epoch of the merge lease: %w", err)
	}
	return nil
}

// Keep renews every third of the time to live until ctx ends, and calls lost once when the lease is gone or when
// it couldn't be renewed for so long that others may think so.
func (r *Right) Keep(ctx context.Context, lost func(error)) {
	every := r.store.ttl / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		tried := time.Now()
		one, cancel := context.WithTimeout(ctx, every)
		err := r.Renew(one)
		cancel()
		switch {
		case err == nil:
			renewed = tried
		case errors.Is(err, ErrLost):
			lost(ErrLost)
			return
		case ctx.Err() != nil:
			return
		case time.Since(renewed) > r.store.ttl-every/2:
			lost(fmt.Errorf("%w: not renewed in time: %w", ErrLost, err))
			return
		}
		timer.Reset(every)
	}
}

// ReleaseTx gives the lease back and wakes who is next, in the transaction that ends the holder's turn.
func (r *Right) ReleaseTx(ctx context.Context, tx pgx.Tx) error {
	if _, err := r.releaseTx(ctx, tx); err != nil {
		return err
	}
	return r.store.WakeTx(ctx, tx, r.repo, r.target, r.attempt)
}

// GiveBack gives the lease back outside a transition, conditional on its epoch alone; when it was still held, wake says
// whether who is next is told.
func (r *Right) GiveBack(ctx context.Context, wake bool) error {
	return db.InTx(ctx, r.store.pool, func(tx pgx.Tx) error {
		held, err := r.releaseTx(ctx, tx)
		if err != nil || !held || !wake {
			return err
		}
		return r.store.WakeTx(ctx, tx, r.repo, r.target, r.attempt)
	})
}

// releaseTx gives the lease back, if it is still held under this epoch. The caller wakes who is next.
func (r *Right) releaseTx(ctx context.Context, tx pgx.Tx) (held bool, err error) {
	tag, err := tx.Exec(ctx, freeLease+` where repo = $1 and target = $2 and epoch = $3 and job_id = $4`,
		r.repo, r.target, r.epoch, r.job.Job().ID)
	if err != nil {
		return false, fmt.Errorf("release merge lease: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}
