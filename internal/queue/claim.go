package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

const (
	claimTries = 6
	keyWindow  = 256 // concurrency keys that one claim looks at
)

// ClaimRequest says who claims what.
type ClaimRequest struct {
	Worker Worker
	Lane   string
	Kinds  []string // only these
	Limit  int      // free slots
}

// Claim grants up to Limit jobs of a lane to a worker, each under a new epoch. It returns fewer, or none, when no more
// are due. When it fails, the jobs that it may have granted all the same are found by a later Beat.
func (q *Queue) Claim(ctx context.Context, req ClaimRequest) (leases []*Lease, err error) {
	if req.Limit <= 0 || len(req.Kinds) == 0 {
		return nil, nil
	}
	h := q.holder(req.Worker.ID)
	done := h.claimStarts()
	defer func() { done(leases) }()
	for try := range claimTries {
		var contended bool
		leases, contended, err = q.claimOnce(ctx, h, req)
		switch {
		case err == nil && (!contended || len(leases) > 0):
			return leases, nil
		case err != nil && !claimLost(err):
			return nil, fmt.Errorf("claim jobs: %w", err)
		}
		if err := pause(ctx, try); err != nil {
			return nil, fmt.Errorf("claim jobs: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	return leases, nil
}

// claimLost says whether a claim met another one: two rows of one concurrency key, or locks taken crosswise. The
// statement is undone whole then, and repeated, so the other rows of the batch aren't lost with the one.
func claimLost(err error) bool {
	switch db.Code(err) {
	case db.CodeDeadlock, db.CodeSerialization:
		return true
	default:
		return db.ViolatedConstraint(err) == "jobs_concurrency"
	}
}

// pause waits a little before a try is repeated: up to 2, 4, 8 … ms.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(2 * time.Millisecond << try)) //nolint:gosec // spreads load, guards nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginClaim pins the plans: the statistics of a queue are always wrong, and each of these statements has one right
// plan, along an index in its order, at every size.
const beginClaim = `begin; set local plan_cache_mode = force_generic_plan;
set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off`

// claimOnce looks what can be claimed, and claims of that. contended: another claimer was at the same rows.
func (q *Queue) claimOnce(ctx context.Context, h *holder, req ClaimRequest) (leases []*Lease, contended bool, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, q.pool, pgx.TxOptions{BeginQuery: beginClaim}, func(tx pgx.Tx) error {
		keys, err := freeKeys(ctx, tx, h, req.Lane)
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		ids, err := candidates(ctx, tx, req, keys)
		if err != nil {
			return fmt.Errorf("find candidates: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		leases, err = q.grant(ctx, tx, req, ids)
		if err != nil {
			return fmt.Errorf("grant: %w", err)
		}
		contended = len(leases) < min(len(ids), req.Limit)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return leases, contended, nil
}

// keysSQL walks the distinct concurrency keys of a lane's queued jobs, one index probe each, however many jobs wait
// behind a key.
const keysSQL = `
with recursive waiting (key, n) as (
	(select concurrency_key, 1 from jobs
	 where state = 'queued' and concurrency_key is not null and lane = @lane and concurrency_key > @after
	 order by concurrency_key limit 1)
	union all
	select (select concurrency_key from jobs
	        where state = 'queued' and concurrency_key is not null and lane = @lane and concurrency_key > w.key
	        order by concurrency_key limit 1), n + 1
	from waiting w
	where key is not null and n < @window)
select key, exists (select from jobs r where r.state = 'running' and r.concurrency_key = w.key) as busy
from waiting w
where key is not null`

// freeKeys returns concurrency keys that have queued jobs and no running one. With more keys than fit the window, the
// next call goes on behind it, so that every key has its turn.
func freeKeys(ctx context.Context, tx pgx.Tx, h *holder, lane string) ([]string, error) {
	rows, err := tx.Query(ctx, keysSQL, pgx.NamedArgs{"lane": lane, "after": h.keyCursor(lane), "window": keyWindow})
	if err != nil {
		return nil, err
	}
	free := []string{}
	var key string
	var busy bool
	tag, err := pgx.ForEachRow(rows, []any{&key, &busy}, func() error {
		if !busy {
			free = append(free, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() < keyWindow {
		key = ""
	}
	h.setKeyCursor(lane, key)
	return free, nil
}

// candidatesSQL finds the best due jobs without locking them. Each branch reads one partial index in its own order and
// stops after @many rows. run_at comes behind priority there, so each priority in use is its own range: otherwise
// jobs of a high priority that aren't due would be walked again and again. Of a concurrency key only the first job is
// a candidate: its second would be next while the first is locked by another claimer.
const candidatesSQL = `
with recursive free_level (kind, priority) as (
	select kind, (select priority from jobs
	              where state = 'queued' and concurrency_key is null and pinned_root is null
	                and lane = @lane and kind = k.kind
	              order by priority desc limit 1)
	from unnest(@kinds::text[]) as k (kind)
	union all
	select kind, (select priority from jobs
	              where state = 'queued' and concurrency_key is null and pinned_root is null
	                and lane = @lane and kind = l.kind and priority < l.priority
	              order by priority desc limit 1)
	from free_level l
	where priority is not null
), pinned_level (kind, priority) as (
	select kind, (select priority from jobs
	              where state = 'queued' and concurrency_key is null and pinned_root = @root
	                and lane = @lane and kind = k.kind
	              order by priority desc limit 1)
	from unnest(@kinds::text[]) as k (kind)
	union all
	select kind, (select priority from jobs
	              where state = 'queued' and concurrency_key is null and pinned_root = @root
	                and lane = @lane and kind = l.kind and priority < l.priority
	              order by priority desc limit 1)
	from pinned_level l
	where priority is not null
), candidate (id, priority, run_at, pinned) as (
	select j.* from free_level l cross join lateral (
		select id, priority, run_at, false from jobs
		where state = 'queued' and concurrency_key is null and pinned_root is null
		  and lane = @lane and kind = l.kind and priority = l.priority and run_at <= now()
		order by run_at, id limit @many) j
	union all
	select j.* from pinned_level l cross join lateral (
		select id, priority, run_at, true from jobs
		where state = 'queued' and concurrency_key is null and pinned_root = @root
		  and lane = @lane and kind = l.kind and priority = l.priority and run_at <= now()
		order by run_at, id limit @many) j
	union all
	select j.* from unnest(@keys::text[]) as k (key) cross join lateral (
		select id, priority, run_at, pinned_root is not null from jobs
		where state = 'queued' and concurrency_key = k.key
		  and lane = @lane and kind = any(@kinds::text[]) and run_at <= now()
		  and (pinned_root is null or pinned_root = @root)
		order by priority desc, run_at, id limit 1) j
)
select id from candidate
order by pinned desc, priority desc, run_at, id
limit @many`

// candidates returns more ids than there are slots, so that claimers who look at the same time find something each.
func candidates(ctx context.Context, tx pgx.Tx, req ClaimRequest, keys []string) ([]int64, error) {
	rows, err := tx.Query(ctx, candidatesSQL, pgx.NamedArgs{
		"lane": req.Lane, "kinds": req.Kinds, "root": req.Worker.RootID, "keys": keys, "many": 2*req.Limit + 8,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// grantSQL locks the first of the candidates that are still to be had, in their order, and no more than wanted.
const grantSQL = `
with picked as materialized (
	select id from jobs j
	where id = any(@ids::bigint[]) and state = 'queued' and run_at <= now()
	  and (pinned_root is null or pinned_root = @root)
	  and not exists (select from jobs r where r.state = 'running' and r.concurrency_key = j.concurrency_key)
	order by array_position(@ids::bigint[], id)
	limit @limit
	for update of j skip locked)
update jobs set state = 'running', attempt = attempt + 1, epoch = epoch + 1,
	worker_id = @worker, root_id = @root, host = @host, boot_id = @boot, pid = @pid, pid_started_at = @pid_started,
	lease_expires_at = clock_timestamp() + make_interval(secs => @ttl),
	heartbeat_at = clock_timestamp(), started_at = clock_timestamp(), phase = null
where id = any(array(select id from picked))
returning ` + columns

func (q *Queue) grant(ctx context.Context, tx pgx.Tx, req ClaimRequest, ids []int64) ([]*Lease, error) {
	w := req.Worker
	sent := bootTime()
	rows, err := tx.Query(ctx, grantSQL, pgx.NamedArgs{
		"ids": ids, "limit": req.Limit, "worker": w.ID, "root": w.RootID, "host": w.Host, "boot": w.BootID,
		"pid": w.PID, "pid_started": w.PIDStartedAt, "ttl": seconds(q.cfg.LeaseTTL),
	})
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByName[Job])
	if err != nil {
		return nil, err
	}
	leases := make([]*Lease, 0, len(jobs))
	for _, job := range jobs {
		leases = append(leases, q.newLease(w, job, sent))
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return slices.Index(ids, a.id) - slices.Index(ids, b.id) })
	return leases, nil
}
