package overview

import (
	"context"
	"fmt"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

// Running is a job that runs now.
type Running struct {
	queue.Job
	// Silence is how long ago its last heartbeat was, by the database's clock.
	Silence time.Duration
}

// Running returns the jobs that run now, oldest first, at most limit of them.
func (r *Reader) Running(ctx context.Context, limit int) ([]Running, error) {
	type row struct {
		queue.Job
		SilenceS float64
	}
	rows, err := statement.Collect[row](ctx, r.on, `select `+statement.JobColumns+`,
	coalesce(extract(epoch from clock_timestamp() - coalesce(heartbeat_at, started_at)), 0)::float8 as silence_s
from jobs where state = 'running' order by id limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	running := make([]Running, 0, len(rows))
	for _, r := range rows {
		running = append(running, Running{Job: r.Job, Silence: time.Duration(r.SilenceS * float64(time.Second))})
	}
	return running, nil
}

// OfTasks returns the live jobs of tasks, by the ids of these.
func (r *Reader) OfTasks(ctx context.Context, taskIDs []int64) (map[int64]queue.Job, error) {
	keys := make([]string, len(taskIDs))
	for i, id := range taskIDs {
		keys[i] = queue.TaskKey(id)
	}
	jobs, err := statement.Collect[queue.Job](ctx, r.on, `select `+statement.JobColumns+` from jobs where dedupe_key = any($1) and state in ('queued', 'running')`, keys)
	if err != nil {
		return nil, fmt.Errorf("find jobs of tasks: %w", err)
	}
	live := make(map[int64]queue.Job, len(jobs))
	for _, job := range jobs {
		if job.TaskID != nil {
			live[*job.TaskID] = job
		}
	}
	return live, nil
}
