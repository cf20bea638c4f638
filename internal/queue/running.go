package queue

import (
	"context"
	"fmt"
	"time"

	"orch/internal/queue/internal/statement"
)

// Running is a job that runs now.
type Running struct {
	Job
	// Silence is how long ago its last heartbeat was, by the database's clock.
	Silence time.Duration
}

// Running returns the jobs that run now, oldest first, at most limit of them.
func (q *Queue) Running(ctx context.Context, limit int) ([]Running, error) {
	type row struct {
		Job
		SilenceS float64
	}
	rows, err := statement.Collect[row](ctx, q.source(), `select `+statement.JobColumns+`,
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

// ActiveForTask returns the live job of a task as it is now, or nil.
func (q *Queue) ActiveForTask(ctx context.Context, taskID int64) (*Job, error) {
	jobs, err := statement.Collect[Job](ctx, q.source(), `select `+statement.JobColumns+` from jobs where dedupe_key = $1 and state in ('queued', 'running')`, TaskKey(taskID))
	if err != nil {
		return nil, fmt.Errorf("find job of task %d: %w", taskID, err)
	}
	if len(jobs) == 0 {
		return nil, nil //nolint:nilnil // no job is a normal answer
	}
	return &jobs[0], nil
}
