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
