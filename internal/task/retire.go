package task

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Retire has the workspace of a task cleaned up that nobody works on: what is in it is salvaged, and when the task goes on
// it gets a new one. It may be repeated, and is nothing for a task that goes on meanwhile.
func (s *Store) Retire(ctx context.Context, id int64) error {
	t, err := s.ByID(ctx, id)
	if err != nil {
		return fmt.Errorf("retire task: %w", err)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return retireTx(ctx, tx, t) })
}
