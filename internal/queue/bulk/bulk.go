// Package bulk queues many jobs at once.
package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

const (
	batchSize = 10_000 // rows of one statement
	tries     = 5      // of a transaction that met another one
)

// EnqueueMany queues jobs in one transaction and returns how many that were: one whose dedupe key a live job has, or
// one before it in ins, is left out. Each lane is woken once. Jobs without a dedupe key are copied, which is much
// faster, and come first in the order of ids. As with any transaction, an error of COMMIT leaves open whether they were
// queued.
func EnqueueMany(ctx context.Context, pool *pgxpool.Pool, ins []queue.Insert) (queued int64, err error) {
	var plain, deduped []row
	for n, in := range ins {
		r, err := rowOf(in)
		if err != nil {
			return 0, fmt.Errorf("enqueue %d jobs: job %d: %w", len(ins), n, err)
		}
		if r.dedupe == nil {
			plain = append(plain, r)
		} else {
			deduped = append(deduped, r)
		}
	}
	for try := 1; ; try++ {
		err = db.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			queued, err = insertAll(ctx, statement.On(pool, 0), tx, plain, deduped)
			return err
		})
		if err == nil {
			return queued, nil
		}
		if try == tries || db.Code(err) != db.CodeDeadlock { // two that have dedupe keys in common
			return 0, fmt.Errorf("enqueue %d jobs: %w", len(ins), err)
		}
	}
}

// insertAll bounds each statement, not the whole.
func insertAll(ctx context.Context, on statement.Source, tx pgx.Tx, plain, deduped []row) (int64, error) {
	b := &insertion{on: on, tx: tx, lanes: map[string]bool{}}
	if err := tx.QueryRow(ctx, `select now()`).Scan(&b.now); err != nil {
		return 0, err
	}
	if err := b.insert(ctx, plain, b.copy); err != nil {
		return 0, err
	}
	if err := b.insert(ctx, deduped, b.insertNew); err != nil {
		return 0, err
	}
	if b.queued == 0 {
		return 0, nil
	}
	_, err := tx.Exec(ctx, `select pg_notify($1, lane) from unnest($2::text[]) as l (lane) where `+db.NotifyRoom,
		queue.ChannelJobs, slices.Collect(maps.Keys(b.lanes)))
	return b.queued, err
}

// insertion is one transaction that inserts.
type insertion struct {
	on     statement.Source
	tx     pgx.Tx
	now    time.Time // the database's
	queued int64
	lanes  map[string]bool
}

func (b *insertion) insert(ctx context.Context, rows []row, do func(context.Context, []row) (int64, error)) error {
	for chunk := range slices.Chunk(rows, batchSize) {
		ctx, cancel := b.on.Bounded(ctx)
		n, err := do(ctx, chunk)
		cancel()
		if err != nil {
			return err
		}
		b.queued += n
		for n := range chunk {
			b.lanes[chunk[n].lane] = true
		}
	}
	return nil
}

func (b *insertion) copy(ctx context.Context, rows []row) (int64, error) {
	columns := []string{"kind", "lane", "repo", "args", "priority", "run_at", "max_attempts", "concurrency_key", "task_id", "pinned_root"}
	return b.tx.CopyFrom(ctx, pgx.Identifier{"jobs"}, columns, pgx.CopyFromSlice(len(rows), func(n int) ([]any, error) {
		r := &rows[n]
		at := b.now
		if r.runAt != nil {
			at = *r.runAt
		}
		return []any{r.kind, r.lane, r.repo, r.args, r.priority, at, r.maxAttempts, r.concurrency, r.task, r.pinned}, nil
	}))
}

// insertNewSQL leaves out twins, also those within the same statement.
const insertNewSQL = `
insert into jobs (kind, lane, repo, args, priority, run_at, max_attempts, dedupe_key, concurrency_key, task_id, pinned_root)
select kind, lane, repo, args::jsonb, priority, coalesce(run_at, now()), max_attempts, dedupe, concurrency, task, pinned
from unnest(@kind::text[], @lane::text[], @repo::text[], @args::text[], @priority::smallint[], @run_at::timestamptz[], @max_attempts::smallint[],
	@dedupe::text[], @concurrency::text[], @task::bigint[], @pinned::uuid[])
	as r (kind, lane, repo, args, priority, run_at, max_attempts, dedupe, concurrency, task, pinned)
on conflict (dedupe_key) where dedupe_key is not null and state in ('queued', 'running') do nothing`

func (b *insertion) insertNew(ctx context.Context, rows []row) (int64, error) {
	tag, err := b.tx.Exec(ctx, insertNewSQL, pgx.NamedArgs{
		"kind":         column(rows, func(r *row) string { return r.kind }),
		"lane":         column(rows, func(r *row) string { return r.lane }),
		"repo":         column(rows, func(r *row) string { return r.repo }),
		"args":         column(rows, func(r *row) string { return string(r.args) }),
		"priority":     column(rows, func(r *row) int { return r.priority }),
		"run_at":       column(rows, func(r *row) *time.Time { return r.runAt }),
		"max_attempts": column(rows, func(r *row) int { return r.maxAttempts }),
		"dedupe":       column(rows, func(r *row) *string { return r.dedupe }),
		"concurrency":  column(rows, func(r *row) *string { return r.concurrency }),
		"task":         column(rows, func(r *row) *int64 { return r.task }),
		"pinned":       column(rows, func(r *row) *uuid.UUID { return r.pinned }),
	})
	return tag.RowsAffected(), err
}

func column[T any](rows []row, of func(*row) T) []T {
	out := make([]T, len(rows))
	for n := range rows {
		out[n] = of(&rows[n])
	}
	return out
}

// row is an Insert as the columns of its row; nil is NULL, or the default.
type row struct {
	kind, lane, repo      string
	args                  json.RawMessage
	priority, maxAttempts int
	runAt                 *time.Time
	dedupe, concurrency   *string
	task                  *int64
	pinned                *uuid.UUID
}

func rowOf(in queue.Insert) (row, error) {
	in, raw, err := in.Encode()
	if err != nil {
		return row{}, err
	}
	return row{
		kind: in.Kind, lane: in.Lane, repo: in.Repo, args: raw, priority: in.Priority, maxAttempts: in.MaxAttempts,
		runAt: statement.OrNull(in.RunAt), dedupe: statement.OrNull(in.DedupeKey), concurrency: statement.OrNull(in.ConcurrencyKey),
		task: statement.OrNull(in.TaskID), pinned: statement.OrNull(in.PinnedRoot),
	}, nil
}
