package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue/internal/statement"
)

// flushLimitsSQL: who waits for one row's lock, or is stopped with all of them locked, must not keep the others for
// long. What isn't written together is written alone.
const flushLimitsSQL = `select set_config('lock_timeout', '1s', true), set_config('idle_in_transaction_session_timeout', '5s', true)`

// flushSQL takes one statement for each epoch: an array without a join has the same plan whatever the statistics
// say, along the index, in the order of the ids.
const flushSQL = `with ended as (update jobs set ` + setSucceeded + `
	where id = any(@ids) and state = 'running' and worker_id = @worker and epoch = @epoch
	returning id, kind
), counted as (
	insert into job_totals as t (kind, state, shard, total)
	select kind, 'succeeded', @shard, count(*) from ended group by kind order by kind
	on conflict (kind, state, shard) do update set total = t.total + excluded.total)
select id from ended`

// written is what a transaction did for a batch.
type written struct {
	xid   string
	ended []*completion
	left  []*completion // not their lease's any more, or nobody knows: each finds out alone
}

// commit ends a batch in one transaction. Without an error every one has its answer, with one nobody has.
func (c *Completer) commit(ctx context.Context, batch []*completion) error {
	ctx, cancel := c.q.detached(ctx)
	defer cancel()
	conn, err := c.q.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // drops the connection when it is still in the transaction
	w, err := c.end(ctx, conn, batch)
	if err == nil {
		err = commitAll(w.ended)
	}
	if err != nil {
		_, _ = conn.Exec(ctx, `rollback`)
		return err
	}
	tag, err := conn.Exec(ctx, `commit`)
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	for _, e := range w.ended {
		e.lease.answered(OutcomeSucceeded, w.xid, err)
	}
	switch {
	case err == nil:
		answer(w.ended, nil)
	case ambiguous(err):
		answer(w.ended, ErrAlone)
	default:
		return err
	}
	answer(w.left, ErrAlone)
	return nil
}

// commitAll is the moment after which a mark comes too late for these ends, all or none of them.
func commitAll(ended []*completion) error {
	for n, e := range ended {
		if err := e.lease.commits(OutcomeSucceeded); err != nil {
			for _, before := range ended[:n] {
				before.lease.answered(OutcomeSucceeded, "", pgx.ErrTxClosed)
			}
			return errMarked
		}
	}
	return nil
}

// end begins a transaction and writes the ends, their totals and the wake-ups of what they held back.
func (c *Completer) end(ctx context.Context, conn *pgxpool.Conn, batch []*completion) (written, error) {
	var w written
	took, err := c.endJobs(ctx, conn, batch, &w.xid)
	if err != nil {
		return w, fmt.Errorf("end jobs: %w", err)
	}
	lanes, keys := slices.Clone(c.worker.Lanes), []string(nil)
	for _, e := range batch {
		if !took[e.lease.grant()] {
			w.left = append(w.left, e)
			continue
		}
		delete(took, e.lease.grant()) // an end that is asked for twice is one
		w.ended = append(w.ended, e)
		if job := e.lease.Job(); job.ConcurrencyKey != nil {
			lanes, keys = append(lanes, job.Lane), append(keys, *job.ConcurrencyKey)
		}
	}
	if len(keys) == 0 {
		return w, nil
	}
	slices.Sort(lanes)
	if _, err := conn.Exec(ctx, wakeSQL, pgx.NamedArgs{"lanes": slices.Compact(lanes), "keys": keys}); err != nil {
		return w, fmt.Errorf("wake what ended jobs held back: %w", err)
	}
	return w, nil
}

// endJobs takes the rows that are still held out of running.
func (c *Completer) endJobs(ctx context.Context, on statement.Batcher, batch []*completion, xid *string) (map[grant]bool, error) {
	byEpoch := map[int][]int64{}
	for _, e := range batch {
		byEpoch[e.lease.epoch] = append(byEpoch[e.lease.epoch], e.lease.id)
	}
	took := make(map[grant]bool, len(batch))
	sent := &pgx.Batch{}
	sent.Queue(`begin`)
	sent.Queue(statement.ByIndexSQL)
	sent.Queue(flushLimitsSQL)
	for _, epoch := range slices.Sorted(maps.Keys(byEpoch)) {
		ids := slices.Sorted(slices.Values(byEpoch[epoch]))
		args := pgx.NamedArgs{"ids": ids, "epoch": epoch, "worker": c.worker.ID, "shard": int(c.worker.ID[0]) % shards}
		statement.Add(sent, flushSQL, args).Query(func(rows pgx.Rows) error {
			g := grant{epoch: epoch}
			_, err := pgx.ForEachRow(rows, []any{&g.id}, func() error { took[g] = true; return nil })
			return err
		})
	}
	sent.Queue(`select pg_current_xact_id()::text`).QueryRow(func(row pgx.Row) error { return row.Scan(xid) })
	return took, on.SendBatch(ctx, sent).Close()
}
