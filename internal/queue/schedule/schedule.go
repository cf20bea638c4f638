// Package schedule queues jobs that are to come again and again, whoever thinks of them: it owns the table schedules, which
// says for all processes when that was done last.
package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

const (
	// notDue: the last time lies within the interval. One in the future, left by a clock that was wrong, is none.
	notDue = ` last_at between clock_timestamp() - make_interval(secs => @every) and clock_timestamp()`

	// scheduledSQL is a look without a lock: nearly always it isn't time yet.
	scheduledSQL = `select exists (select from schedules where name = @name and` + notDue + `)`

	// takeTurnSQL is one process's: another one waits for its transaction and then finds that it isn't time.
	takeTurnSQL = `
insert into schedules as s (name, last_at) values (@name, clock_timestamp())
on conflict (name) do update set last_at = clock_timestamp() where not s.` + notDue
)

// EnqueueEvery is EnqueueEveryTx in a transaction of its own.
func EnqueueEvery(ctx context.Context, pool *pgxpool.Pool, every time.Duration, in queue.Insert) (queued bool, err error) {
	ctx, cancel := statement.On(pool, 0).Bounded(ctx)
	defer cancel()
	err = db.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		queued, err = EnqueueEveryTx(ctx, tx, every, in)
		return err
	})
	return queued && err == nil, err
}

// EnqueueEveryTx queues a job unless any process has queued one of its kind this way less than every ago, by the
// database's clock. It is false also when a live job has the dedupe key. When tx is undone, the turn is as well.
func EnqueueEveryTx(ctx context.Context, tx pgx.Tx, every time.Duration, in queue.Insert) (queued bool, err error) {
	args := pgx.NamedArgs{"name": in.Kind, "every": every.Seconds()}
	var early bool
	if err := tx.QueryRow(ctx, scheduledSQL, args).Scan(&early); err != nil {
		return false, fmt.Errorf("look when %s was queued last: %w", in.Kind, err)
	}
	if early {
		return false, nil
	}
	tag, err := tx.Exec(ctx, takeTurnSQL, args)
	if err != nil {
		return false, fmt.Errorf("note that %s is queued: %w", in.Kind, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	out, err := queue.EnqueueTx(ctx, tx, in)
	return err == nil && !out.Duplicate, err
}
