package merge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// ErrLeaseLost says that the merge lease isn't this holder's any more: it was taken over after it expired, or
// reclaimed. The job's own lease may still hold.
var ErrLeaseLost = errors.New("merge lease lost")

// WaitingForLease is what a merge job waits for while others of its target are before it.
const WaitingForLease = "merge_lease"

// right is the held right to land on one target branch: a merge lease under one epoch, for one grant of a job.
type right struct {
	store        *Store
	job          *queue.Lease
	repo, target string
	epoch        int64
}

// leaseState is a row of merge_leases with what the database's clock and the queue say about it.
type leaseState struct {
	Lease

	Expired bool // the last renewal is older than the time to live
	Running bool // its job runs under the recorded job epoch
}

func (s leaseState) held() bool { return s.JobID != 0 }

// free says that anyone may take the lease. A holder that renews and whose job runs is never touched.
func (s leaseState) free() bool { return !s.held() || s.Expired || !s.Running }

// reason says why a held lease is free.
func (s leaseState) reason() string {
	if !s.Running {
		return ReasonJobEnded
	}
	return ReasonExpired
}

// lockLeaseTx locks the lease's row, making it if need be, and reads it afterwards: in a statement of its own,
// because one that waited for the lock would still see the jobs as they were before it waited.
func (s *Store) lockLeaseTx(ctx context.Context, tx pgx.Tx, repo, target string) (leaseState, error) {
	var none leaseState
	if _, err := tx.Exec(ctx, `insert into merge_leases (repo, target, epoch) values ($1, $2, 1)
		on conflict do nothing`, repo, target); err != nil {
		return none, fmt.Errorf("make merge lease: %w", err)
	}
	if _, err := tx.Exec(ctx, `select from merge_leases where repo = $1 and target = $2 for update`,
		repo, target); err != nil {
		return none, fmt.Errorf("lock merge lease: %w", err)
	}
	states, err := s.leaseStates(ctx, tx, `l.repo = $2 and l.target = $3`, repo, target)
	if err != nil {
		return none, err
	}
	if len(states) != 1 {
		return none, fmt.Errorf("read merge lease of %s %s: %d rows", repo, target, len(states))
	}
	return states[0], nil
}

// acquireTx takes the lease for the attempt when it is free (or held by the attempt's own branch under an epoch
// that ended) and no one stands before the attempt. A nil right with a position above zero means busy.
// taken is the former holder when the lease had to be taken over.
func (s *Store) acquireTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, a attempt) (got *right, position int, taken *Reclaimed, err error) {
	state, err := s.lockLeaseTx(ctx, tx, a.Repo, a.Target)
	if err != nil {
		return nil, 0, nil, err
	}
	job := l.Job()
	self := state.held() && state.TaskID == a.TaskID && (state.JobID == job.ID || !state.Running)
	ahead, err := s.aheadTx(ctx, tx, a, job.Priority)
	if err != nil {
		return nil, 0, nil, err
	}
	if !self && !state.free() {
		return nil, ahead + 2, nil, nil // the holder, those ahead, this one
	}
	if !self && ahead > 0 {
		// Free, but someone else's turn: make sure that it knows, whatever became of the wake-up.
		if err := s.wakeTx(ctx, tx, a.Repo, a.Target, a.ID); err != nil {
			return nil, 0, nil, err
		}
		return nil, ahead + 1, nil, nil
	}
	if state.held() && !self {
		taken = &Reclaimed{Lease: state.Lease, Reason: state.reason()}
		if err := queue.AddCounterTx(ctx, tx, CounterReclaimed, 1); err != nil {
			return nil, 0, nil, fmt.Errorf("count reclaimed merge lease: %w", err)
		}
	}
	got = &right{store: s, job: l, repo: a.Repo, target: a.Target}
	w := l.Worker()
	err = tx.QueryRow(ctx, `
		update merge_leases set epoch = epoch + 1, task_id = $3, branch = $4, job_id = $5, job_epoch = $6,
			worker_id = $7, root_id = $8, host = $9, boot_id = $10, pid_namespace = $11, pid = $12,
			pid_started_at = $13, acquired_at = clock_timestamp(), renewed_at = clock_timestamp()
		where repo = $1 and target = $2 returning epoch`,
		a.Repo, a.Target, a.TaskID, a.Branch, job.ID, job.Epoch, w.ID, w.RootID, w.Host, w.BootID,
		w.PIDNamespace, w.PID, w.PIDStartedAt).Scan(&got.epoch)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("take merge lease: %w", err)
	}
	return got, 1, taken, nil
}

// fenceTx locks the lease's row and refuses unless it is still this holder's. The caller's transaction has locked
// the job's row already (queue.Lease.Tx).
func (r *right) fenceTx(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `select from merge_leases
		where repo = $1 and target = $2 and epoch = $3 and job_id = $4 and job_epoch = $5 for update`,
		r.repo, r.target, r.epoch, r.job.Job().ID, r.job.Job().Epoch)
	if err != nil {
		return fmt.Errorf("lock merge lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLeaseLost
	}
	return nil
}

// renew puts the lease's end off, and doubles as the check before an effect outside the database. It needs the
// lease's epoch and a job that runs under its own epoch: a hung holder whose job was reaped can't go on for ever.
func (r *right) renew(ctx context.Context) error {
	tag, err := r.store.pool.Exec(ctx, `
		update merge_leases set renewed_at = clock_timestamp()
		where repo = $1 and target = $2 and epoch = $3 and job_id = $4 and job_epoch = $5
			and exists (select from jobs where id = $4 and state = 'running' and epoch = $5)`,
		r.repo, r.target, r.epoch, r.job.Job().ID, r.job.Job().Epoch)
	if err != nil {
		return fmt.Errorf("renew merge lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLeaseLost
	}
	return nil
}

// keep renews every third of the time to live until ctx ends, and calls lost once when the lease is gone or when
// it couldn't be renewed for so long that others may think so.
func (r *right) keep(ctx context.Context, lost func(error)) {
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
		err := r.renew(one)
		cancel()
		switch {
		case err == nil:
			renewed = tried
		case errors.Is(err, ErrLeaseLost):
			lost(ErrLeaseLost)
			return
		case ctx.Err() != nil:
			return
		case time.Since(renewed) > r.store.ttl-every/2:
			lost(fmt.Errorf("%w: not renewed in time: %w", ErrLeaseLost, err))
			return
		}
		timer.Reset(every)
	}
}

// releaseTx gives the lease back, if it is still held under this epoch. The caller wakes who is next.
func (r *right) releaseTx(ctx context.Context, tx pgx.Tx) (held bool, err error) {
	tag, err := tx.Exec(ctx, freeLease+` where repo = $1 and target = $2 and epoch = $3 and job_id = $4`,
		r.repo, r.target, r.epoch, r.job.Job().ID)
	if err != nil {
		return false, fmt.Errorf("release merge lease: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// freeLease empties a lease's row; its epoch stays, so that it is never given out twice.
const freeLease = `update merge_leases set task_id = null, branch = null, job_id = null, job_epoch = null,
	worker_id = null, root_id = null, host = null, boot_id = null, pid_namespace = null, pid = null,
	pid_started_at = null, acquired_at = null, renewed_at = null`
