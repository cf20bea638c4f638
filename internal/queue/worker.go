package queue

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/queue/internal/statement"
)

// Worker is who claims: one boot of one process.
type Worker struct {
	ID           uuid.UUID `db:"id"`      // of this boot
	RootID       uuid.UUID `db:"root_id"` // data root it serves
	Host         string    `db:"host"`
	BootID       string    `db:"boot_id"`
	PIDNamespace string    `db:"pid_namespace"`
	PID          int       `db:"pid"`
	PIDStartedAt int64     `db:"pid_started_at"` // clock ticks after boot
	Version      string    `db:"version"`
	Lanes        []string  `db:"lanes"`
	Repos        []string  `db:"repos"`  // repositories it serves; a beat may bring others
	Schema       int       `db:"schema"` // newest migration that its program knows
}

// RegisterWorker writes the worker's row, by which others can tell whether its process lives. It may be repeated.
func (q *Queue) RegisterWorker(ctx context.Context, w Worker) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	return register(ctx, q.pool, w)
}

func register(ctx context.Context, on execer, w Worker) error {
	_, err := on.Exec(ctx, `
insert into workers (`+statement.WorkerColumns+`)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (id) do update set lanes = excluded.lanes, repos = excluded.repos, schema = excluded.schema,
	heartbeat_at = clock_timestamp(), stopped_at = null`,
		w.ID, w.RootID, w.Host, w.BootID, w.PIDNamespace, w.PID, w.PIDStartedAt, w.Version, orEmpty(w.Lanes), orEmpty(w.Repos), w.Schema)
	if err != nil {
		return fmt.Errorf("register worker: %w", err)
	}
	return nil
}

// execer is the pool or a connection.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// WorkerStopped notes that the worker is gone and closes the connection of its beats. What it still holds in the
// database is left to others: Take.
func (q *Queue) WorkerStopped(ctx context.Context, w Worker) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	h := q.holder(w.ID)
	h.beat.close(ctx)
	q.mu.Lock()
	delete(q.holders, w.ID)
	q.mu.Unlock()
	if _, err := q.pool.Exec(ctx, `update workers set stopped_at = clock_timestamp() where id = $1`, w.ID); err != nil {
		return fmt.Errorf("note that the worker stopped: %w", err)
	}
	return nil
}

// orEmpty is what NULL would be in a column that has none.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
