package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
)

// Of 5,000 jobs of all sorts, four workers run each once and no two of one key at once.
func TestClaimersOfAMixedQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const jobs = 5000
	b.Exec(insertJobs+`select case when n % 5 = 0 then 'other' else 'work' end, 'lane', case when n % 4 = 0 then 'a' else '' end, 3, n % 3,
		case when n % 3 = 0 then 'k' || n % 20 end, case when n % 7 = 0 then $2::uuid end, now() - n % 11 * interval '1 s'
		from generate_series(1, $1::int) n`, jobs, b.W.RootID)
	r := &runners{running: map[string]int{}, left: jobs}
	var mu sync.Mutex
	claimed := map[int64]int{}
	var wg sync.WaitGroup
	for range 4 {
		req := queue.ClaimRequest{Worker: queuetest.Worker(b.W.RootID), Lane: "lane", Kinds: []string{"work", "other"}, Repos: []string{"a"}, Limit: 25}
		wg.Go(func() {
			for r.more() {
				leases, err := b.Q.Claim(t.Context(), req)
				if err != nil {
					r.fail(err.Error())
					return
				}
				mu.Lock()
				for _, l := range leases {
					claimed[l.Job().ID]++
				}
				mu.Unlock()
				r.finish(t.Context(), b.Pool, leases)
			}
		})
	}
	wg.Wait()
	queuetest.Equal(t, "problem", r.problem, "")
	queuetest.Equal(t, "jobs claimed", len(claimed), jobs)
	for id, n := range claimed {
		queuetest.Equal(t, fmt.Sprintf("claims of %d", id), n, 1)
	}
}

// Of one key never two jobs run, and of several claimers' batches nothing gets lost.
func TestConcurrencyKeyNeverTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 40).Draw(rt, "keys") // 0 = no key
		priorities := rapid.SliceOfN(rapid.IntRange(0, 2), len(keys), len(keys)).Draw(rt, "priorities")
		workers := rapid.IntRange(1, 6).Draw(rt, "workers")
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		b.Exec(`truncate jobs`)
		for n, key := range keys {
			in := queue.Insert{Kind: "work", Lane: "lane", Priority: priorities[n]}
			if key > 0 {
				in.ConcurrencyKey = fmt.Sprint("k", key)
			}
			b.Enqueue(in)
		}
		r := &runners{running: map[string]int{}, left: len(keys)}
		var wg sync.WaitGroup
		for range workers {
			w := queuetest.Worker(b.W.RootID)
			wg.Go(func() { r.run(t.Context(), b.Q, w, limit) })
		}
		wg.Wait()
		if r.problem != "" {
			rt.Fatal(r.problem)
		}
		census, err := overview.NewReader(b.Pool).Census(t.Context())
		if err != nil || len(census.Depth) != 0 {
			rt.Fatalf("left: %+v, %v", census.Depth, err)
		}
	})
}

// runners complete what they claim and watch the keys.
type runners struct {
	mu      sync.Mutex
	running map[string]int
	left    int
	problem string
}

func (r *runners) run(ctx context.Context, q *queue.Queue, w queue.Worker, limit int) {
	for r.more() {
		leases, err := q.Claim(ctx, queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: limit})
		if err != nil {
			r.fail(err.Error())
			return
		}
		for _, l := range leases {
			r.enter(l.Job().ConcurrencyKey, 1)
		}
		for _, l := range leases {
			r.enter(l.Job().ConcurrencyKey, -1)
			if err := completeOn(ctx, l); err != nil {
				r.fail(err.Error())
				return
			}
			r.done()
		}
	}
}

// finish ends what was claimed, all in one statement.
func (r *runners) finish(ctx context.Context, pool *pgxpool.Pool, leases []*queue.Lease) {
	for _, l := range leases {
		r.enter(l.Job().ConcurrencyKey, 1)
	}
	for _, l := range leases {
		r.enter(l.Job().ConcurrencyKey, -1)
	}
	if _, err := pool.Exec(ctx, `update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null
		where id = any($1)`, queuetest.IDs(leases)); err != nil {
		r.fail(err.Error())
	}
	for range leases {
		r.done()
	}
}

func (r *runners) enter(key *string, by int) {
	if key == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[*key] += by
	if r.running[*key] > 1 {
		r.problem = "two jobs of key " + *key
	}
}

func (r *runners) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left > 0 && r.problem == ""
}

func (r *runners) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
}

func (r *runners) fail(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = problem
}

// A claim that others win each time is no failure: the lane looks again soon.
func TestClaimThatAlwaysLosesBringsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Enqueue(queue.Insert{})
	b.Exec(`create function lose() returns trigger language plpgsql as $$ begin raise exception using errcode = '40P01'; end $$`)
	b.Exec(`create trigger lose before update on jobs for each statement execute function lose()`)
	if leases := b.Claim(b.W, 10); len(leases) > 0 {
		t.Errorf("%d claimed", len(leases))
	}
	if again := b.Q.LookAgain(b.W.ID, "lane"); again <= 0 || again > time.Second {
		t.Errorf("to look again after %s", again)
	}
	b.Exec(`drop trigger lose on jobs`)
	queuetest.Equal(t, "claimed then", len(b.Claim(b.W, 10)), 1)
}
