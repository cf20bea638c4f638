package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// BenchmarkComplete ends jobs that many handlers finish at the same time, each in a transaction of its own or together.
func BenchmarkComplete(b *testing.B) {
	const handlers = 1000
	for name, together := range map[string]bool{"alone": false, "together": true} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			pool := testdb.New(b)
			q := queue.New(pool, queue.Config{})
			w := queuetest.Worker(queuetest.Root(b, pool))
			ins := make([]queue.Insert, b.N)
			for n := range ins {
				ins[n] = queue.Insert{Kind: "work", Lane: "lane"}
			}
			if _, err := bulk.EnqueueMany(ctx, pool, ins); err != nil {
				b.Fatal(err)
			}
			leases := make(chan *queue.Lease, b.N)
			for len(leases) < b.N {
				some, err := q.Claim(ctx, queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: handlers})
				if err != nil || len(some) == 0 {
					b.Fatalf("claimed %d, %v", len(some), err)
				}
				for _, l := range some {
					leases <- l
				}
			}
			close(leases)
			var left atomic.Int64
			left.Store(int64(b.N))
			complete := completeOn
			if together {
				complete = queue.NewCompleter(q, w, func() int { return int(left.Load()) }).Complete
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for range handlers {
				wg.Go(func() {
					for l := range leases {
						left.Add(-1)
						if err := complete(ctx, l); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
