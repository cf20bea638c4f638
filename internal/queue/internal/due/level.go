package due

import (
	"time"

	"github.com/google/uuid"
)

// level is a range of the index jobs_queued in which rows differ by when they are due only.
type level struct {
	Kind     string
	Root     uuid.UUID // its jobs are pinned to; zero = none
	Keyed    bool      // they have concurrency keys
	Repo     string
	Priority int16
}

// place is a level and where claims look in it.
type place struct {
	level
	mark  time.Time // the walk begins there; zero = at the beginning
	empty bool      // it had no rows when the levels were listed last
}

// Candidate is a job that a claim may try to take.
type Candidate struct {
	N        int // of its level, counted from 1; 0 = followed
	ID       int64
	Priority int16
	RunAt    time.Time
	Key      *string
}

// keyRow is a key of the walk from key to key, with its job if one is to be had.
type keyRow struct {
	Key      string
	Nth      int
	N        *int
	ID       *int64
	Priority *int16
	RunAt    *time.Time
}

// Parts of the statements below. @window is never less than @many.
const (
	anywhere = `coalesce(pinned_root, '00000000-0000-0000-0000-000000000000')`

	// inGroup and inLevel are ranges of jobs_queued, l is the level.
	inGroup = `state = 'queued' and lane = @lane and kind = l.kind and ` + anywhere + ` = l.root
	and (concurrency_key is not null) = l.keyed`
	inLevel = inGroup + ` and repo = l.repo and priority = l.priority`
	due     = ` and run_at >= l.mark and run_at <= now()`

	// firstOfKey is the first due job of the level l with the key of k, by jobs_queued_keyed.
	firstOfKey = `
	select id, run_at from jobs
	where state = 'queued' and lane = @lane and concurrency_key = k.key and kind = l.kind and ` + anywhere + ` = l.root
		and repo = l.repo and priority = l.priority` + due + `
	order by run_at, id limit 1`
	keyIsFree = `not exists (select from jobs r where r.worker_id is not null and r.concurrency_key = k.key)`

	// NotPaused is asked of a level or a job.
	NotPaused = `not exists (select from pauses where (scope = 'lane' and name = @lane) or (scope = 'repo' and name = repo))`

	// knownLevels are those of the claim's view, without the paused ones.
	knownLevels = `(
	select * from unnest(
			@kinds::text[], @roots::uuid[], @keyed::boolean[], @repos::text[], @priorities::smallint[], @marks::timestamptz[])
		with ordinality as l (kind, root, keyed, repo, priority, mark, n)
	where ` + NotPaused + ` offset 0) l`
)

// listSQL lists the levels that have rows, one index probe each.
const listSQL = `
with recursive level (kind, root, keyed, repo, priority) as (
	select l.kind, l.root, l.keyed, first.repo, first.priority
	from (select * from unnest(@kinds::text[]) as kind, unnest(@roots::uuid[]) as root, unnest(array[false, true]) as keyed) l
	cross join lateral (
		select repo, priority from jobs where ` + inGroup + ` order by repo, priority desc limit 1) first
	union all
	select l.kind, l.root, l.keyed, next.repo, next.priority
	from level l cross join lateral (
		(select repo, priority from jobs where ` + inGroup + ` and repo = l.repo and priority < l.priority
		 order by repo, priority desc limit 1)
		union all
		(select repo, priority from jobs where ` + inGroup + ` and repo > l.repo
		 order by repo, priority desc limit 1)
		limit 1) next)
select kind, root, keyed, repo, priority from level
where root = @root or repo = any(@repos::text[])`

// walkSQL finds due jobs, without locking them: of each level the first that are to be had, and those that are
// followed. Of a key only the first job is one: its second would be next while another claimer has the first locked.
// The key of the row before spares most of a crowd the two probes.
const walkSQL = `
select l.n, job.id, l.priority, job.run_at, job.key
from ` + knownLevels + `
cross join lateral (
	select k.id, k.run_at, k.key from (
		select id, run_at, concurrency_key as key, lag(concurrency_key) over (order by run_at, id) as key_before
		from jobs where ` + inLevel + due + `
		order by run_at, id limit @window) k
	where k.key is null or (k.key is distinct from k.key_before and ` + keyIsFree + ` and k.id = (select id from (` + firstOfKey + `) first))
	order by k.run_at, k.id limit @many) job
union all
(select 0, id, priority, run_at, key from (
	select id, priority, run_at, concurrency_key as key from jobs
	where state = 'queued' and run_id is not null and lane = @lane and pinned_root = @root
		and kind = any(@handled::text[]) and run_at <= now()
	order by priority desc, run_at, id) k
where k.key is null or ` + keyIsFree + `
limit @many)`

// keysSQL goes from key to key in the lane, one index probe each, and finds the first due job of those that are free.
// It does so only when a level has more due rows than walkSQL looks at: they may all wait for a few keys.
const keysSQL = `
with recursive crowded as materialized (
	select l.* from ` + knownLevels + `
	where l.keyed and exists (
		select from jobs where ` + inLevel + due + ` order by run_at, id offset @window limit 1)
), k (key, nth) as (
	(select concurrency_key, 1 from jobs
	 where state = 'queued' and concurrency_key is not null and lane = @lane and concurrency_key > @after
		and exists (select from crowded)
	 order by concurrency_key limit 1)
	union all
	select next.concurrency_key, k.nth + 1
	from k cross join lateral (
		select concurrency_key from jobs
		where state = 'queued' and concurrency_key is not null and lane = @lane and concurrency_key > k.key
		order by concurrency_key limit 1) next
	where k.nth < @keys)
select k.key, k.nth, job.n, job.id, job.priority, job.run_at
from k left join lateral (
	select l.n, l.priority, first.id, first.run_at
	from (select * from crowded where ` + keyIsFree + ` offset 0) l cross join lateral (` + firstOfKey + `) first) job on true`

// visitedSQL counts the entries and pages of the indexes that this session has visited, entries of dead rows too. Where
// track_counts is off it answers 0, and every look counts as cheap.
const visitedSQL = `
select sum(pg_stat_get_xact_tuples_returned(index) + $1::bigint * pg_stat_get_xact_blocks_fetched(index))::bigint, now()
from unnest(array['jobs_queued'::regclass, 'jobs_queued_keyed'::regclass]) as index`
