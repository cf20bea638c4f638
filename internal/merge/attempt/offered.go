package attempt

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// OfferedTx says whether the open landing of the task can be gone on with by whoever reaches the repository: its head is there.
func (*Store) OfferedTx(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error) {
	var offered bool
	err := tx.QueryRow(ctx, `select exists (select from merge_attempts
		where task_id = $1 and finished_at is null and offered_at is not null)`, taskID).Scan(&offered)
	if err != nil {
		return false, fmt.Errorf("look for an offered head: %w", err)
	}
	return offered, nil
}
