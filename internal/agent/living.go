package agent

import (
	"context"
	"fmt"
)

// CountLiving counts the runs of a task, of whatever data root, whose end isn't noted: they live, or may.
func (r *Runs) CountLiving(ctx context.Context, taskID int64) (int, error) {
	var n int
	err := r.cfg.Pool.QueryRow(ctx, `select count(*) from runs where task_id = $1 and state <> 'finished'`, taskID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count living runs of task %d: %w", taskID, err)
	}
	return n, nil
}
