package queue_test

import (
	"context"
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// BenchmarkClaim claims and completes one job at a time with a backlog that must not be walked.
func BenchmarkClaim(b *testing.B) {
	const insert = `insert into jobs (kind, lane, max_attempts, priority, concurrency_key, pinned_root, run_at) `
	for name, backlog := range map[string]string{
		"none":             `select 'work', 'lane', 3, 0, null, null, now() where false`,
		"a_million_queued": insert + `select 'work', 'lane', 3, 0, null, null, now() + n * interval '1 us' from generate_series(1, 1000000) n`,
		"one_running_key":  insert + `select 'work', 'lane', 3, 9, 'busy', null, now() from generate_series(1, 100000)`,
		"pinned_elsewhere": insert + `select 'work', 'lane', 3, 9, null, gen_random_uuid(), now() from generate_series(1, 100000)`,
		"not_due":          insert + `select 'work', 'lane', 3, 9, null, null, now() + interval '1 day' from generate_series(1, 100000)`,
		"unhandled_kind":   insert + `select 'unhandled', 'lane', 3, 9, null, null, now() from generate_series(1, 100000)`,
		"a_million_finished": `insert into jobs (kind, lane, max_attempts, state, finished_at)
			select 'work', 'lane', 3, 'succeeded', now() from generate_series(1, 1000000)`,
	} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			pool := testdb.New(b)
			q := queue.New(pool, queue.Config{})
			w := queuetest.Worker(queuetest.Root(b, pool))
			do := func(sql string) {
				if _, err := pool.Exec(ctx, sql); err != nil {
					b.Fatal(err)
				}
			}
			do(backlog)
			if name == "one_running_key" {
				claimOne(ctx, b, q, w)
			}
			do(`analyze jobs`)
			for range 600 {
				if _, err := q.Enqueue(ctx, queue.Insert{Kind: "work", Lane: "lane", ConcurrencyKey: keyOf(name)}); err != nil {
					b.Fatal(err)
				}
			}
			for range 20 {
				if err := completeOn(ctx, claimOne(ctx, b, q, w)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				lease := claimOne(ctx, b, q, w)
				b.StopTimer()
				if err := completeOn(ctx, lease); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func keyOf(name string) string {
	if name == "one_running_key" {
		return "other"
	}
	return ""
}

func claimOne(ctx context.Context, b *testing.B, q *queue.Queue, w queue.Worker) *queue.Lease {
	b.Helper()
	leases, err := q.Claim(ctx, queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 1})
	if err != nil || len(leases) != 1 {
		b.Fatalf("claimed %d, %v", len(leases), err)
	}
	return leases[0]
}
