package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// beginFlush pins the plans, as a claim does. Who waits for one row's lock, or is stopped with all of them locked, must
// not keep the others for long: what isn't written together is written alone.
const beginFlush = `begin; set local plan_cache_mode = force_generic_plan;
set local enable_seqscan = off; set local enable_bitmapscan = off;
set local lock_timeout = '1s'; set local idle_in_transaction_session_timeout = '5s'`

const (
	// flushSQL takes one statement for each epoch: an array without a join has the same plan whatever the statistics
	// say, along the index, in the order of the ids.
	flushSQL = `update jobs set ` + setSucceeded + `
where id = any(@ids) and state = 'running' and worker_id = @worker and epoch = @epoch
returning id`

	// totalSQL comes last and in one order for everybody, since these rows are everybody's.
	totalSQL = `
insert into job_totals as t (kind, state, shard, total)
select kind, 'succeeded', @shard, n from unnest(@kinds::text[], @counts::bigint[]) as c (kind, n) order by kind
on conflict (kind, state, shard) do update set total = t.total + excluded.total`
)

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
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginFlush})
	if err != nil {
		return err
	}
	w, err := c.end(ctx, tx, batch)
	if err == nil {
		err = commitAll(w.ended)
	}
	if err != nil {
		ctx, cancel := c.q.detached(ctx)
		defer cancel()
		_ = tx.Rollback(ctx) // the connection is dropped when this fails, which rolls back as well
		return err
	}
	err = tx.Commit(ctx)
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

// end writes the ends, their totals and the wake-ups of what they held back.
func (c *Completer) end(ctx context.Context, tx pgx.Tx, batch []*completion) (written, error) {
	var w written
	took, err := c.endJobs(ctx, tx, batch, &w.xid)
	if err != nil {
		return w, fmt.Errorf("end jobs: %w", err)
	}
	totals, lanes, keys := map[string]int64{}, slices.Clone(c.worker.Lanes), []string(nil)
	for _, e := range batch {
		if !took[e.lease.grant()] {
			w.left = append(w.left, e)
			continue
		}
		delete(took, e.lease.grant()) // an end that is asked for twice is one
		w.ended = append(w.ended, e)
		job := e.lease.Job()
		totals[job.Kind]++
		if job.ConcurrencyKey != nil {
			lanes, keys = append(lanes, job.Lane), append(keys, *job.ConcurrencyKey)
		}
	}
	more := &pgx.Batch{}
	if len(totals) > 0 {
		kinds := slices.Sorted(maps.Keys(totals))
		counts := make([]int64, 0, len(kinds))
		for _, kind := range kinds {
			counts = append(counts, totals[kind])
		}
		more.Queue(totalSQL, pgx.NamedArgs{"shard": int(c.worker.ID[0]) % shards, "kinds": kinds, "counts": counts})
	}
	if len(keys) > 0 {
		slices.Sort(lanes)
		more.Queue(wakeSQL, pgx.NamedArgs{"lanes": slices.Compact(lanes), "keys": keys})
	}
	if err := tx.SendBatch(ctx, more).Close(); err != nil {
		return w, fmt.Errorf("count ended jobs: %w", err)
	}
	return w, nil
}

// endJobs takes the rows that are still held out of running.
func (c *Completer) endJobs(ctx context.Context, tx pgx.Tx, batch []*completion, xid *string) (map[grant]bool, error) {
	byEpoch := map[int][]int64{}
	for _, e := range batch {
		byEpoch[e.lease.epoch] = append(byEpoch[e.lease.epoch], e.lease.id)
	}
	took := make(map[grant]bool, len(batch))
	sent := &pgx.Batch{}
	for _, epoch := range slices.Sorted(maps.Keys(byEpoch)) {
		ids := slices.Sorted(slices.Values(byEpoch[epoch]))
		args := pgx.NamedArgs{"ids": ids, "epoch": epoch, "worker": c.worker.ID}
		sent.Queue(flushSQL, args).Query(func(rows pgx.Rows) error {
			g := grant{epoch: epoch}
			_, err := pgx.ForEachRow(rows, []any{&g.id}, func() error { took[g] = true; return nil })
			return err
		})
	}
	sent.Queue(`select pg_current_xact_id()::text`).QueryRow(func(row pgx.Row) error { return row.Scan(xid) })
	return took, tx.SendBatch(ctx, sent).Close()
}
