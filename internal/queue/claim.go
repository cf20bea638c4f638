package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
	"orch/internal/queue/internal/due"
	"orch/internal/queue/internal/statement"
)

const (
	claimTries = 8
	fullTries  = 3 // of which lost ones are repeated whole
)

// ClaimRequest says who claims what.
type ClaimRequest struct {
	Worker Worker
	Lane   string
	Kinds  []string // only these
	Repos  []string // repositories served: of the jobs that aren't pinned to the worker's root, only theirs and those of none
	Limit  int      // free slots
}

// repos are those of which jobs may be claimed that are pinned to no root.
func (r ClaimRequest) repos() []string { return append([]string{""}, r.Repos...) }

// Claim grants up to Limit jobs of a lane to a worker, each under a new epoch. It returns fewer, or none, when no more
// are due, or when it lost them to other claimers again and again: LookAgain tells. When it fails, the jobs that it may have granted all the same are found by a later Beat.
func (q *Queue) Claim(ctx context.Context, req ClaimRequest) (leases []*Lease, err error) {
	if req.Limit <= 0 || len(req.Kinds) == 0 {
		return nil, nil
	}
	h := q.holder(req.Worker.ID)
	done := h.claimStarts()
	defer func() { done(leases) }()
	lost := 0
	for try := range claimTries {
		var contended bool
		leases, contended, err = q.claimOnce(ctx, h, req, lost)
		switch {
		case err == nil && (!contended || len(leases) > 0):
			return leases, nil
		case err != nil && !claimLost(err):
			return nil, fmt.Errorf("claim jobs: %w", err)
		case err != nil:
			lost++
		}
		if err := standBack(ctx, try); err != nil {
			return nil, fmt.Errorf("claim jobs: %w", err)
		}
	}
	if err != nil { // to lose is nobody's fault, and somebody has won
		q.contended(h, req.Lane)
		return nil, nil
	}
	return leases, nil
}

// contended has the lane look again soon.
func (*Queue) contended(h *holder, lane string) {
	v := h.view(lane)
	v.Contended = true
	h.setView(lane, v)
}

// LookAgain says after which time another claim of a lane may bring jobs that the last one couldn't see, although it
// brought fewer than there were slots. Zero: it saw everything.
func (q *Queue) LookAgain(worker uuid.UUID, lane string) time.Duration {
	v := q.holder(worker).view(lane)
	return v.Again()
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

// standBack waits a little before a try is repeated: up to 2, 4, 8 … ms.
func standBack(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(2 * time.Millisecond << try)) //nolint:gosec // spreads load, guards nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// claimOnce looks what can be claimed, and claims of that. One that loses again and again claims half as much each time: the
// more keys there are in a claim, the likelier it meets another one. contended: another claimer was at the same rows.
func (q *Queue) claimOnce(ctx context.Context, h *holder, req ClaimRequest, lost int) (leases []*Lease, contended bool, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	conn, err := q.pool.Acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer conn.Release()
	view := h.view(req.Lane)
	found, err := view.Find(ctx, conn, due.Request{
		Lane: req.Lane, Kinds: req.Kinds, Repos: req.repos(), Root: req.Worker.RootID, Limit: req.Limit,
	})
	if err == nil && len(found) > 0 {
		found = found[:max(1, len(found)>>max(0, lost-fullTries))]
		leases, err = q.grant(ctx, conn, req, found)
	}
	if err != nil {
		return nil, false, err
	}
	taken := make(map[int64]bool, len(leases))
	for _, lease := range leases {
		taken[lease.id] = true
	}
	view.Advance(found, taken)
	contended = len(leases) < min(len(found), req.Limit)
	view.Contended = (contended || lost > fullTries) && len(leases) > 0 // of rows that somebody keeps locked nothing is to be had soon
	h.setView(req.Lane, view)
	return leases, contended, nil
}

// grantSQL locks the first of the candidates that are still to be had, in their order, and no more than wanted. The
// state is compared as a text: no index fits that, so no plan finds a job by anything but its id.
const grantSQL = `
with picked as materialized (
	select job.id from unnest(@ids::bigint[]) as c (id) cross join lateral (
		select id from jobs j
		where j.id = c.id and state::text = 'queued' and run_at <= now()
			and (pinned_root = @root or (pinned_root is null and repo = any(@repos::text[])))
			and (run_id is not null or ` + due.NotPaused + `)
			and not exists (select from jobs r where r.worker_id is not null and r.concurrency_key = j.concurrency_key)
		for update skip locked) job
	limit @limit)
update jobs set state = 'running', attempt = attempt + 1, epoch = epoch + 1,
	worker_id = @worker, root_id = @root, host = @host, boot_id = @boot, pid = @pid, pid_started_at = @pid_started,
	lease_expires_at = clock_timestamp() + make_interval(secs => @ttl),
	heartbeat_at = clock_timestamp(), started_at = clock_timestamp(), phase = null
where id = any(array(select id from picked))
returning ` + grantedColumns

// grantedColumns are those that a grant finds or that the server fills in; the others are the worker's, or empty.
const grantedColumns = `id, kind, lane, repo, args, priority, run_at, attempt, max_attempts, recoveries, epoch, task_id, run_id, pinned_root,
	dedupe_key, concurrency_key, progress, heartbeat_at, lease_expires_at, cancel_requested_at, started_at, created_at, waiting_since,
	error_code, error`

// granted reads a row of grantedColumns: of a claim of many jobs this is most of the work that this process has.
func granted(w *Worker, row pgx.CollectableRow) (Job, error) {
	j := Job{
		State: StateRunning, WorkerID: &w.ID, RootID: &w.RootID, Host: &w.Host, BootID: &w.BootID, PID: &w.PID, PIDStartedAt: &w.PIDStartedAt,
	}
	err := row.Scan(&j.ID, &j.Kind, &j.Lane, &j.Repo, &j.Args, &j.Priority, &j.RunAt, &j.Attempt, &j.MaxAttempts, &j.Recoveries, &j.Epoch,
		&j.TaskID, &j.RunID, &j.PinnedRoot, &j.DedupeKey, &j.ConcurrencyKey, &j.Progress, &j.HeartbeatAt, &j.LeaseExpiresAt,
		&j.CancelRequestedAt, &j.StartedAt, &j.CreatedAt, &j.WaitingSince, &j.ErrorCode, &j.Error)
	return j, err
}

// grant makes leases of the first candidates that can be had, in their order.
func (q *Queue) grant(ctx context.Context, on statement.Batcher, req ClaimRequest, found []due.Candidate) ([]*Lease, error) {
	w := req.Worker
	ids, place := make([]int64, len(found)), make(map[int64]int, len(found))
	for n, c := range found {
		ids[n], place[c.ID] = c.ID, n
	}
	leases := make([]*Lease, 0, min(req.Limit, len(found)))
	sent := clock.Boot()
	batch := statement.ByIndex()
	statement.Add(batch, grantSQL, pgx.NamedArgs{
		"ids": ids, "limit": req.Limit, "lane": req.Lane, "repos": req.repos(), "worker": w.ID, "root": w.RootID, "host": w.Host,
		"boot": w.BootID, "pid": w.PID, "pid_started": w.PIDStartedAt, "ttl": seconds(q.cfg.LeaseTTL),
	}).Query(func(rows pgx.Rows) (err error) {
		leases, err = pgx.AppendRows(leases, rows, func(row pgx.CollectableRow) (*Lease, error) {
			job, err := granted(&w, row)
			return q.newLease(w, job, sent), err
		})
		return err
	})
	if err := on.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return place[a.id] - place[b.id] })
	return leases, nil
}
