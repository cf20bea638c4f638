package queue

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CodeHostDead is why a job was taken from a data root whose host was given up.
const CodeHostDead = "host_dead"

const setLost = `state = 'cancelled', run_id = null, error_code = '` + CodeHostDead + `',
	error = 'its data root gave no sign of life for too long', finished_at = clock_timestamp(), phase = null` + unheld

// LoseTx ends a queued job that is pinned to a data root whose host was given up, whatever run it has: nobody else could
// ever take it. False when it isn't so any more. A running one is released first, when its lease is over.
func LoseTx(ctx context.Context, tx pgx.Tx, jobID int64, root uuid.UUID) (Job, bool, error) {
	job, err := move(ctx, tx, setLost, ` where id = @id and state = 'queued' and pinned_root = @root`, pgx.NamedArgs{"id": jobID, "root": root})
	if isNoRows(err) {
		return Job{}, false, nil
	}
	if err != nil {
		return Job{}, false, fmt.Errorf("take job %d from its data root: %w", jobID, err)
	}
	return job, true, nil
}
