package overview

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

const (
	defaultLimit = 50
	maxLimit     = 500
)

// Filter says which jobs List returns; zero values mean any.
type Filter struct {
	State  queue.State
	TaskID int64
	Before int64 // only ids below: the last id of the page before
	Limit  int   // default 50, at most 500
}

// List returns jobs, newest first.
func (r *Reader) List(ctx context.Context, f Filter) ([]queue.Job, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	jobs, err := statement.Collect[queue.Job](ctx, r.on, `
select `+statement.JobColumns+` from jobs
where (@state::text is null or state = @state::text::job_state) and (@task::bigint is null or task_id = @task)
  and (@before::bigint is null or id < @before)
order by id desc limit @limit`, pgx.NamedArgs{
		"state": statement.OrNull(string(f.State)), "task": statement.OrNull(f.TaskID), "before": statement.OrNull(f.Before), "limit": min(f.Limit, maxLimit),
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}
