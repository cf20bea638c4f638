package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

const (
	// takeManyLimits bounds the wait for rows that others have, and takes the plan from statistics that are always wrong.
	takeManyLimits = `select set_config('lock_timeout', '500ms', true), set_config('enable_seqscan', 'off', true)`

	// asSeenMany is the fence of many: each row as it was seen.
	asSeenMany = ` where id = any(@ids::bigint[]) and state = 'running'
	and worker_id = (@workers::uuid[])[array_position(@ids::bigint[], id)]
	and epoch = (@epochs::int[])[array_position(@ids::bigint[], id)]`

	takeManyHead = `with seen as materialized (
	select id from jobs` + asSeenMany + ` and run_id is null and cancel_requested_at is null and recoveries < @most
	order by id for update`
	takeManyTail = `), moved as (update jobs set ` + setReleased + ` from seen where jobs.id = seen.id returning jobs.id, lane
), told as (
	select pg_notify('` + ChannelJobs + `', lane) from (select distinct lane from moved) lanes where ` + db.NotifyRoom + `)
select id, (select count(*) from told) from moved order by id`

	takeManyFree = takeManyHead + ` skip locked` + takeManyTail // what nobody has locked
	takeManyHeld = takeManyHead + takeManyTail
)

// TakeMany is Take for many jobs at once whose workers have died under them, and that need nothing of their own: each as it was
// seen, without a run, a cancel, or so many recoveries that it would fail. The attempts are given back, and each counts a
// recovery. Within does the rest for those that are taken, in their transaction. It returns which were, and which are left for
// Take: those that are still as they were seen, or, beside an error, all others.
func (q *Queue) TakeMany(
	ctx context.Context, seen []Seen, within func(ctx context.Context, tx pgx.Tx, taken []Seen) error,
) (taken, left []Seen, err error) {
	left = seen
	// What somebody has locked is mostly being taken too: who waits for that finds it changed.
	for _, sql := range []string{takeManyFree, takeManyHeld} {
		if len(left) == 0 {
			return taken, nil, nil
		}
		ids, err := q.takeMany(ctx, sql, left, within)
		if err != nil {
			return taken, left, fmt.Errorf("take %d jobs from their workers: %w", len(left), err)
		}
		were := left
		taken, left = append(taken, those(were, ids, true)...), those(were, ids, false)
	}
	if len(left) == 0 {
		return taken, nil, nil
	}
	still, err := statement.Collect[struct{ ID int64 }](ctx, q.source(), `select id from jobs`+asSeenMany, manyArgs(left))
	if err != nil {
		return taken, left, fmt.Errorf("look at %d jobs again: %w", len(left), err)
	}
	ids := make(map[int64]bool, len(still))
	for _, job := range still {
		ids[job.ID] = true
	}
	return taken, those(left, ids, true), nil
}

// those are the jobs that are, or aren't, among the ids.
func those(jobs []Seen, ids map[int64]bool, among bool) []Seen {
	return slices.DeleteFunc(slices.Clone(jobs), func(s Seen) bool { return ids[s.ID] != among })
}

func (q *Queue) takeMany(
	ctx context.Context, sql string, seen []Seen, within func(ctx context.Context, tx pgx.Tx, taken []Seen) error,
) (map[int64]bool, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	var taken map[int64]bool
	err := db.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, takeManyLimits); err != nil {
			return err
		}
		taken = make(map[int64]bool, len(seen))
		rows, err := tx.Query(ctx, sql, manyArgs(seen))
		if err != nil {
			return err
		}
		var id, told int64
		if _, err := pgx.ForEachRow(rows, []any{&id, &told}, func() error { taken[id] = true; return nil }); err != nil || len(taken) == 0 {
			return err
		}
		return within(ctx, tx, those(seen, taken, true)) // their lanes are told, so what their keys kept back is looked for too
	})
	return taken, err
}

func manyArgs(seen []Seen) pgx.NamedArgs {
	args := Release{Recovery: true}.args()
	ids, workers, epochs := make([]int64, len(seen)), make([]uuid.UUID, len(seen)), make([]int, len(seen))
	for n, s := range seen {
		ids[n], workers[n], epochs[n] = s.ID, *s.WorkerID, s.Epoch
	}
	args["ids"], args["workers"], args["epochs"], args["most"] = ids, workers, epochs, MaxRecoveries
	return args
}
