package lease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// Turn is an attempt that stands in the line of its target and asks for the lease.
type Turn struct {
	Attempt  int64 // id of the attempt
	TaskID   int64
	Repo     string
	Target   string
	Branch   string
	Intended bool // its intent is written: it goes before all others
}

// AcquireTx takes the lease for a turn when it is free (or held by the turn's own branch under an epoch that ended) and
// no one stands before it. A nil right with a position above zero means busy; taken is the former holder when the lease
// had to be taken over, for the caller to [Store.Warn] of once the transaction is committed.
func (s *Store) AcquireTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Turn) (got *Right, position int, taken *Reclaimed, err error) {
	state, err := s.lockLeaseTx(ctx, tx, t.Repo, t.Target)
	if err != nil {
		return nil, 0, nil, err
	}
	job := l.Job()
	self := state.held() && state.TaskID == t.TaskID && (state.JobID == job.ID || !state.Running)
	ahead, err := s.aheadTx(ctx, tx, t, job.Priority)
	if err != nil {
		return nil, 0, nil, err
	}
	if !self && !state.free() {
		return nil, ahead + 2, nil, nil // the holder, those ahead, this one
	}
	if !self && ahead > 0 {
		// Free, but someone else's turn: make sure that it knows, whatever became of the wake-up.
		if err := s.WakeTx(ctx, tx, t.Repo, t.Target, t.Attempt); err != nil {
			return nil, 0, nil, err
		}
		return nil, ahead + 1, nil, nil
	}
	if state.held() && !self {
		taken = &Reclaimed{Lease: state.Lease, Reason: state.reason()}
		if err := s.takenTx(ctx, tx, *taken); err != nil {
			return nil, 0, nil, err
		}
	}
	got = &Right{store: s, job: l, repo: t.Repo, target: t.Target, attempt: t.Attempt}
	w := l.Worker()
	err = tx.QueryRow(ctx, `
		update merge_leases set epoch = epoch + 1, task_id = $3, branch = $4, job_id = $5, job_epoch = $6,
			worker_id = $7, root_id = $8, host = $9, boot_id = $10, pid_namespace = $11, pid = $12,
			pid_started_at = $13, acquired_at = clock_timestamp(), renewed_at = clock_timestamp()
		where repo = $1 and target = $2 returning epoch`,
		t.Repo, t.Target, t.TaskID, t.Branch, job.ID, job.Epoch, w.ID, w.RootID, w.Host, w.BootID,
		w.PIDNamespace, w.PID, w.PIDStartedAt).Scan(&got.epoch)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("take merge lease: %w", err)
	}
	return got, 1, taken, nil
}

// LockTx locks the lease's row, making it if need be, whoever holds it. Who changes the line of a target locks it first: then
// nobody decides to wait behind, or to go on before, somebody who is just leaving.
func (s *Store) LockTx(ctx context.Context, tx pgx.Tx, repo, target string) error {
	if _, err := tx.Exec(ctx, `insert into merge_leases (repo, target, epoch) values ($1, $2, 1)
		on conflict do nothing`, repo, target); err != nil {
		return fmt.Errorf("make merge lease: %w", err)
	}
	if _, err := tx.Exec(ctx, `select from merge_leases where repo = $1 and target = $2 for update`,
		repo, target); err != nil {
		return fmt.Errorf("lock merge lease: %w", err)
	}
	return nil
}

// lockLeaseTx locks the lease's row, making it if need be, and reads it afterwards: in a statement of its own,
// because one that waited for the lock would still see the jobs as they were before it waited.
func (s *Store) lockLeaseTx(ctx context.Context, tx pgx.Tx, repo, target string) (leaseState, error) {
	var none leaseState
	if err := s.LockTx(ctx, tx, repo, target); err != nil {
		return none, err
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

// FreeTx frees what a task's job holds, whichever grant of it took the lease. It wakes nobody.
func (s *Store) FreeTx(ctx context.Context, tx pgx.Tx, taskID, jobID int64) error {
	if _, err := tx.Exec(ctx, freeLease+` where task_id = $1 and job_id = $2`, taskID, jobID); err != nil {
		return fmt.Errorf("free merge lease: %w", err)
	}
	return nil
}

// freeLease empties a lease's row; its epoch stays, so that it is never given out twice.
const freeLease = `update merge_leases set task_id = null, branch = null, job_id = null, job_epoch = null,
	worker_id = null, root_id = null, host = null, boot_id = null, pid_namespace = null, pid = null,
	pid_started_at = null, acquired_at = null, renewed_at = null`
