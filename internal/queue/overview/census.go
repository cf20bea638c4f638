package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

// How many rows of a state a census looks at in all. GET /queue takes one a second: with these it stays below a twentieth of
// one processor, however many jobs there are.
const (
	maxQueued  = 50_000
	maxRunning = 10_000
	maxFailed  = 10_000
)

// Census is how many jobs there are.
type Census struct {
	// Counts tells how many are queued and running, and how many ever succeeded, failed and were cancelled. The latter are
	// exact, the former the sums of Depth.
	Counts map[queue.State]int64
	Depth  []Depth // by kind and lane
}

// Depth is how much of one kind there is in one lane. A count ends at its share: all kinds and lanes together 50,000 queued
// jobs and 10,000 failed ones, so that the most of one never hides another. The look for the oldest ends there too.
type Depth struct {
	Kind, Lane              string
	Queued, Running, Failed int64
	OldestQueued            *time.Duration // for how long the oldest queued job has been due; nil when none is
}

// censusSQL reads queued, running and failed rows by the partial indexes, and of the indexes only as long as the rows were
// vacuumed since: run_at is a column of jobs_queued for the claims, which serves this too. What has ended is counted when it
// ends.
const censusSQL = `
with recursive queued (lane, kind) as (
	(select lane, kind from jobs where state = 'queued' order by lane, kind limit 1)
	union all
	select next.* from queued q cross join lateral (
		select lane, kind from jobs where state = 'queued' and (lane, kind) > (q.lane, q.kind) order by lane, kind limit 1) next
), failed (lane, kind) as (
	(select lane, kind from jobs where state = 'failed' order by lane, kind limit 1)
	union all
	select next.* from failed f cross join lateral (
		select lane, kind from jobs where state = 'failed' and (lane, kind) > (f.lane, f.kind) order by lane, kind limit 1) next
), live as (
	select 'queued' as state, q.kind, q.lane, counted.total, counted.age
	from queued q cross join lateral (
		select count(*) as total, extract(epoch from clock_timestamp() - min(run_at) filter (where run_at <= now()))::float8 as age
		from (select run_at from jobs where state = 'queued' and lane = q.lane and kind = q.kind
			limit greatest(1, @queued / (select count(*) from queued))) job) counted
	union all
	select 'running', kind, lane, count(*), null
	from (select kind, lane from jobs where state = 'running' limit @running) job group by kind, lane
	union all
	select 'failed', f.kind, f.lane, counted.total, null
	from failed f cross join lateral (
		select count(*) as total from (select from jobs where state = 'failed' and lane = f.lane and kind = f.kind
			limit greatest(1, @failed / (select count(*) from failed))) job) counted)
select false as ever, * from live
union all
select true, state::text, '', '', sum(total)::bigint, null from job_totals group by state`

// Census counts jobs. It holds no arguments, texts or names.
func (r *Reader) Census(ctx context.Context) (Census, error) {
	type row struct {
		Ever       bool // of job_totals
		State      queue.State
		Kind, Lane string
		Total      int64
		Age        *float64
	}
	rows, err := statement.CollectByIndex[row](ctx, r.on, censusSQL, pgx.NamedArgs{"queued": maxQueued, "running": maxRunning, "failed": maxFailed})
	if err != nil {
		return Census{}, fmt.Errorf("count jobs: %w", err)
	}
	type group struct{ kind, lane string }
	depth := map[group]*Depth{}
	counts := map[queue.State]int64{queue.StateQueued: 0, queue.StateRunning: 0, queue.StateSucceeded: 0, queue.StateFailed: 0, queue.StateCancelled: 0}
	for _, r := range rows {
		if r.Ever || r.State != queue.StateFailed {
			counts[r.State] += r.Total
		}
		if r.Ever {
			continue
		}
		d := depth[group{r.Kind, r.Lane}]
		if d == nil {
			d = &Depth{Kind: r.Kind, Lane: r.Lane}
			depth[group{r.Kind, r.Lane}] = d
		}
		switch r.State {
		case queue.StateQueued:
			d.Queued = r.Total
		case queue.StateRunning:
			d.Running = r.Total
		case queue.StateFailed:
			d.Failed = r.Total
		case queue.StateSucceeded, queue.StateCancelled:
		}
		if r.Age != nil {
			d.OldestQueued = new(time.Duration(*r.Age * float64(time.Second)))
		}
	}
	return Census{Counts: counts, Depth: sorted(depth)}, nil
}

func sorted[K comparable](depth map[K]*Depth) []Depth {
	all := make([]Depth, 0, len(depth))
	for _, d := range depth {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Depth) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Lane, b.Lane)) })
	return all
}
