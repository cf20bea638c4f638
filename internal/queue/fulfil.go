package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// FulfilTx ends a queued job as succeeded because another one has done its work, and says whether it still could: a job that
// runs, is pinned by a run, or has ended is left as it is.
func FulfilTx(ctx context.Context, tx pgx.Tx, jobID int64) (bool, error) {
	_, err := move(ctx, tx, setSucceeded, cancelQueued, pgx.NamedArgs{"id": jobID})
	if isNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fulfil job %d: %w", jobID, err)
	}
	return true, nil
}
