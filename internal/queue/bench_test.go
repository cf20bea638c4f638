package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// backlogs are what a claim of 10 jobs must not have to walk.
var backlogs = []struct {
	name string
	sql  string
	due  string // what the concurrency keys of the jobs that are claimed begin with, "" = they have none
	hold bool   // a reader holds a snapshot from before the backlog was worked off
}{
	{name: "none", sql: `select`},
	{name: "10k_queued", sql: insertJobs + `select 'work', 'lane', '', 3, 0, null, null, now() + n * interval '1 us' from generate_series(1, 10000) n`},
	{name: "1M_queued", sql: insertJobs + `select 'work', 'lane', '', 3, 0, null, null, now() + n * interval '1 us' from generate_series(1, 1000000) n`},
	{name: "1M_finished", sql: insertFinished + `from generate_series(1, 1000000)`},
	{name: "100k_behind_one_running_key", sql: insertJobs + `select 'work', 'lane', '', 3, 0, 'busy', null, now() - interval '1 hour' from generate_series(1, 100000)`, due: "free"},
	{name: "1M_not_due_of_higher_priority", sql: insertJobs + `select 'work', 'lane', '', 3, 9, null, null, now() + interval '1 day' from generate_series(1, 1000000)`},
	{name: "100k_pinned_elsewhere", sql: insertJobs + `select 'work', 'lane', '', 3, 9, null, gen_random_uuid(), now() from generate_series(1, 100000)`},
	{name: "100k_of_an_unhandled_kind", sql: insertJobs + `select 'unhandled', 'lane', '', 3, 9, null, null, now() from generate_series(1, 100000)`},
	{name: "100k_of_an_unserved_repo", sql: insertJobs + `select 'work', 'lane', 'elsewhere', 3, 9, null, null, now() from generate_series(1, 100000)`},
	{name: "100k_keys_not_due", sql: insertJobs + `select 'work', 'lane', '', 3, 0, 'k' || n, null, now() + interval '1 day' from generate_series(1, 100000) n`, due: "free"},
	{name: "100k_keys_due", sql: insertJobs + `select 'work', 'lane', '', 3, 0, 'k' || n, null, now() from generate_series(1, 100000) n`, due: "free"},
	{name: "1000_running_keys", sql: insertJobs + `select 'work', 'lane', '', 3, 0, 'k' || n % 1000, null, now() - interval '1 hour' from generate_series(1, 100000) n`, due: "free"},
	{name: "500k_dead_under_a_snapshot", sql: insertJobs + `select 'work', 'lane', '', 3, 0, null, null, now() - interval '1 hour' + n * interval '1 us' from generate_series(1, 500000) n`, hold: true},
}

const insertFinished = `insert into jobs (kind, lane, max_attempts, state, finished_at) select 'work', 'lane', 3, 'succeeded', now() `

// BenchmarkClaim claims 10 jobs at a time from behind a backlog, and tells the median and the slowest of a hundred.
func BenchmarkClaim(b *testing.B) {
	for _, backlog := range backlogs {
		b.Run(backlog.name, func(b *testing.B) {
			pool := testdb.New(b)
			q := queue.New(pool, queue.Config{QueryTimeout: time.Minute})
			w := queuetest.Worker(queuetest.Root(b, pool))
			do := func(sql string, args ...any) {
				if _, err := pool.Exec(b.Context(), sql, args...); err != nil {
					b.Fatal(err)
				}
			}
			do(backlog.sql)
			if backlog.hold {
				hold(b, pool)
				do(`update jobs set state = 'succeeded', finished_at = now()`)
			}
			if backlog.name == "100k_behind_one_running_key" || backlog.name == "1000_running_keys" {
				do(`update jobs set state = 'running', epoch = 1, worker_id = gen_random_uuid(), lease_expires_at = now() + interval '1 day'
					where id in (select min(id) from jobs group by concurrency_key)`)
			}
			do(`vacuum analyze jobs`)
			var took []time.Duration
			claimed := 0
			for b.Loop() {
				b.StopTimer()
				if len(took)%100 == 0 {
					do(insertJobs+`select 'work', 'lane', '', 3, 0, nullif($1, '') || n, null, now() from generate_series(1, 1000) n`, backlog.due)
				}
				b.StartTimer()
				begin := time.Now()
				ids := claimTen(b, q, w)
				took = append(took, time.Since(begin))
				b.StopTimer()
				claimed += len(ids)
				do(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null where id = any($1)`, ids)
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(claimed)/float64(len(took)), "claimed/op")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// claimTen may find fewer: when a thousand busy keys are in the way, the next claim goes on behind them.
func claimTen(b *testing.B, q *queue.Queue, w queue.Worker) []int64 {
	b.Helper()
	leases, err := q.Claim(b.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 10})
	if err != nil {
		b.Fatal(err)
	}
	for _, lease := range leases {
		lease.Forget()
	}
	return queuetest.IDs(leases)
}

// hold keeps a snapshot until the end: what is dead from then on can't be removed, nor marked so in an index.
func hold(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	conn, err := pgx.ConnectConfig(b.Context(), testdb.ConnConfig(pool))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	if _, err := conn.Exec(b.Context(), `begin isolation level repeatable read; select from jobs limit 1`); err != nil {
		b.Fatal(err)
	}
}
