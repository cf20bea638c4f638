// Package look finds out who runs which job, for those who decide whether it still lives. It takes nothing: what is to be
// done about a job goes by queue.Take, which refuses when it isn't any more as it was seen.
package look

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

// Store looks at running jobs and at workers. It is safe for concurrent use.
type Store struct{ on statement.Source }

// NewStore makes a Store on a pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{on: statement.On(pool, 0)} }

// seenJob is a job as seenSQL selects it.
type seenJob struct {
	queue.Job
	Expired, RunFinished bool
	Agent                string
	Since, LookedAt      time.Time
}

const seenSQL = `
select ` + statement.JobColumns + `, lease_expires_at < clock_timestamp() as expired,
	exists (select from runs r where r.id = run_id and r.state = 'finished') as run_finished,
	coalesce((select agent from runs r where r.id = run_id), '') as agent,
	coalesce(greatest(started_at, (select max(r.finished_at) from runs r where r.job_id = jobs.id)), clock_timestamp()) as since,
	clock_timestamp() as looked_at
from jobs where state = 'running'`

// RunningPage lists running jobs with ids above after, in the order of the ids, at most limit of them: whoever looks at all
// of them goes on from the last id of a page, until one isn't full.
func (s *Store) RunningPage(ctx context.Context, after int64, limit int) ([]queue.Seen, error) {
	rows, err := statement.CollectByIndex[seenJob](ctx, s.on, seenSQL+` and id > $1 order by id limit $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	return s.seen(ctx, rows)
}

// HeldBy lists what a worker holds, in the order of the ids.
func (s *Store) HeldBy(ctx context.Context, worker uuid.UUID) ([]queue.Seen, error) {
	rows, err := statement.CollectByIndex[seenJob](ctx, s.on, seenSQL+` and worker_id = $1 order by id`, worker)
	if err != nil {
		return nil, fmt.Errorf("list jobs of worker %s: %w", worker, err)
	}
	return s.seen(ctx, rows)
}

// seen adds who holds the jobs.
func (s *Store) seen(ctx context.Context, rows []seenJob) ([]queue.Seen, error) {
	type row struct {
		queue.Worker
		Stopped bool
	}
	asked, ids := map[uuid.UUID]bool{}, []uuid.UUID(nil)
	for _, r := range rows {
		if id := *r.WorkerID; !asked[id] {
			asked[id], ids = true, append(ids, id)
		}
	}
	found, err := statement.Collect[row](ctx, s.on, `select `+statement.WorkerColumns+`, stopped_at is not null as stopped from workers where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("look for workers: %w", err)
	}
	workers := make(map[uuid.UUID]row, len(found))
	for _, w := range found {
		workers[w.ID] = w
	}
	seen := make([]queue.Seen, 0, len(rows))
	for _, r := range rows {
		holder := workers[*r.WorkerID]
		seen = append(seen, queue.Seen{
			Job: r.Job, Worker: holder.Worker, WorkerStopped: holder.Stopped, Expired: r.Expired, RunFinished: r.RunFinished, Agent: r.Agent,
			Since: r.Since, Elapsed: r.LookedAt.Sub(r.Since),
		})
	}
	return seen, nil
}

// RunningOfBoot lists the workers of one boot and pid namespace, of whatever root, that didn't say goodbye or still hold
// jobs: who is in that namespace can tell of each whether its process lives.
func (s *Store) RunningOfBoot(ctx context.Context, boot, namespace string) ([]queue.Worker, error) {
	workers, err := statement.CollectByIndex[queue.Worker](ctx, s.on, `select `+statement.WorkerColumns+` from workers w where boot_id = $1 and pid_namespace = $2 and
	(stopped_at is null or exists (select from jobs where state = 'running' and worker_id = w.id))
order by started_at, id`, boot, namespace)
	if err != nil {
		return nil, fmt.Errorf("list workers of a boot: %w", err)
	}
	return workers, nil
}

// NoteGone notes that a worker's process is gone, once it holds nothing any more. It may be repeated.
func (s *Store) NoteGone(ctx context.Context, worker uuid.UUID) error {
	ctx, cancel := s.on.Bounded(ctx)
	defer cancel()
	_, err := s.on.Pool.Exec(ctx, `update workers w set stopped_at = clock_timestamp() where id = $1 and stopped_at is null
	and not exists (select from jobs where state = 'running' and worker_id = w.id)`, worker)
	if err != nil {
		return fmt.Errorf("note that worker %s is gone: %w", worker, err)
	}
	return nil
}
