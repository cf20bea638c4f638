package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

const (
	insertJobs = `insert into jobs (kind, lane, repo, max_attempts, priority, concurrency_key, pinned_root, run_at) `

	// enough is more than any claim of these tests has to visit, and a fraction of what it had to walk.
	enough = 6_000
)

// meter claims and tells how many blocks and index entries of jobs that visited.
type meter struct {
	b    *bench
	pool *pgxpool.Pool
	q    *queue.Queue
}

func newMeter(b *bench) *meter {
	pool := queuetest.Pool(b.T, testdb.ConnConfig(b.Pool))
	return &meter{b: b, pool: pool, q: queue.New(pool, queue.Config{})}
}

func (m *meter) claim(limit int) (leases []*queue.Lease, visited int64) {
	m.b.T.Helper()
	m.settle()
	before := m.visited()
	leases, err := m.q.Claim(m.b.T.Context(), queue.ClaimRequest{
		Worker: m.b.W, Lane: "lane", Kinds: []string{"work"}, Repos: []string{"here", "paused"}, Limit: limit,
	})
	m.b.No(err)
	m.settle()
	queuetest.Until(m.b.T, "the claim's visits are known", func() bool {
		visited = m.visited() - before
		return visited > 0
	})
	return leases, visited
}

// settle ends the other sessions: for certain one reports what it did at its end only.
func (m *meter) settle() {
	m.b.T.Helper()
	m.pool.Reset()
	m.b.Pool.Reset()
	queuetest.Until(m.b.T, "the other sessions have ended", func() bool {
		var left int
		m.b.No(m.b.Pool.QueryRow(m.b.T.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle in transaction'`).Scan(&left))
		return left == 0
	})
}

func (m *meter) visited() (n int64) {
	m.b.T.Helper()
	m.b.No(m.b.Pool.QueryRow(m.b.T.Context(), `
		select heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
			+ (select sum(idx_tup_read) from pg_stat_user_indexes where relname = 'jobs')::bigint
		from pg_statio_user_tables where relname = 'jobs'`).Scan(&n))
	return n
}

func TestClaimDoesNotWalkWhatItCannotTake(t *testing.T) {
	t.Parallel()
	const n = ` from generate_series(1, 20000) n`
	for name, c := range map[string]struct{ backlog, due string }{
		"held back by one key":             {insertJobs + `select 'work', 'lane', '', 3, 0, 'busy', null, now() - interval '1 hour'` + n, `'free', ''`},
		"held back, and jobs without keys": {insertJobs + `select 'work', 'lane', '', 3, 0, 'busy', null, now() - interval '1 hour'` + n, `null, ''`},
		"of one key that is free":          {insertJobs + `select 'work', 'lane', '', 3, -1, 'one', null, now()` + n, `'free', ''`},
		"pinned elsewhere":                 {insertJobs + `select 'work', 'lane', '', 3, 9, null, gen_random_uuid(), now()` + n, `null, ''`},
		"not due and more urgent":          {insertJobs + `select 'work', 'lane', '', 3, 9, null, null, now() + interval '1 day'` + n, `null, ''`},
		"not due, each with a key":         {insertJobs + `select 'work', 'lane', '', 3, 0, 'k' || n, null, now() + interval '1 day'` + n, `'free', ''`},
		"of an unhandled kind":             {insertJobs + `select 'unhandled', 'lane', '', 3, 9, null, null, now()` + n, `null, ''`},
		"of an unserved repository":        {insertJobs + `select 'work', 'lane', 'elsewhere', 3, 9, null, null, now()` + n, `null, 'here'`},
		"of a paused repository":           {insertJobs + `select 'work', 'lane', 'paused', 3, 9, null, null, now()` + n, `null, 'here'`},
		"pinned here and paused":           {insertJobs + `select 'work', 'lane', 'paused', 3, 9, 'k' || n, (select id from roots limit 1), now()` + n, `'free', 'here'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			b.No(pause.NewStore(b.Pool).Pause(t.Context(), pause.Pause{Scope: pause.Repo, Name: "paused", Reason: "broken", Actor: "me"}))
			b.Exec(`vacuum analyze jobs`) // the planner thinks that the table is empty, then that it is as it is
			busy := b.Running(queue.Insert{ConcurrencyKey: "busy"}).Job().ID
			b.Exec(c.backlog)
			m := newMeter(b)
			for _, statistics := range []string{"none", "right"} {
				var due int64
				b.No(b.Pool.QueryRow(t.Context(), `insert into jobs (kind, lane, max_attempts, concurrency_key, repo)
					values ('work', 'lane', 3, `+c.due+`) returning id`).Scan(&due))
				leases, visited := m.claim(3)
				queuetest.Equal(t, "claimed first", leases[0].Job().ID, due)
				if visited > enough {
					t.Errorf("statistics %s: visited %d blocks and entries", statistics, visited)
				}
				b.Exec(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null
					where state = 'running' and id <> $1`, busy)
				b.Exec(`vacuum analyze jobs`)
			}
		})
	}
}

// What others worked off stays in the indexes while a reader holds a snapshot from before.
func TestClaimDoesNotWalkTheDeadAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const dead = 15_000
	b.Exec(insertJobs+`select 'work', 'lane', '', 3, 0, null, null, now() - interval '1 hour' from generate_series(1, $1)`, dead)
	reader, err := pgx.ConnectConfig(t.Context(), testdb.ConnConfig(b.Pool))
	b.No(err)
	defer reader.Close(context.WithoutCancel(t.Context()))
	_, err = reader.Exec(t.Context(), `begin isolation level repeatable read; select from jobs limit 1`)
	b.No(err)
	b.Exec(`update jobs set state = 'succeeded', finished_at = now()`)
	for range 10 {
		b.Enqueue(queue.Insert{})
	}
	m := newMeter(b)
	leases, visited := m.claim(1)
	queuetest.Equal(t, "claimed by a look", len(leases), 1)
	if visited < dead {
		t.Fatalf("visited %d of the dead: the test shows nothing", visited)
	}
	queuetest.Equal(t, "the marks serve", queue.Rest(m.q, b.W, "lane", time.Hour), true)
	for n := range 3 {
		leases, visited = m.claim(1)
		queuetest.Equal(t, fmt.Sprint("claimed by its mark: ", n), len(leases), 1)
		if visited > enough {
			t.Errorf("claim %d visited %d blocks and entries", n, visited)
		}
	}
	// Its transaction was a little slower than those of the jobs that were claimed meanwhile.
	slow := b.Enqueue(queue.Insert{RunAt: leases[0].Job().RunAt.Add(-20 * time.Millisecond)})
	leases, _ = m.claim(1)
	queuetest.Equal(t, "claimed from just behind the mark", leases[0].Job().ID, slow)
	queuetest.Equal(t, "the marks serve", queue.Rest(m.q, b.W, "lane", time.Second), true)

	// What no mark leads to is found before long: another priority, kind or repository, and what comes late.
	wanted := map[int64]bool{b.Enqueue(queue.Insert{Priority: 3}): true, b.Enqueue(queue.Insert{Repo: "here", ConcurrencyKey: "k"}): true}
	var late int64
	b.No(b.Pool.QueryRow(t.Context(), insertJobs+`values ('work', 'lane', '', 3, 0, null, null, now() - interval '2 hours') returning id`).Scan(&late))
	wanted[late] = true
	queuetest.Until(t, "all are claimed", func() bool {
		leases, err := m.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Repos: []string{"here", "paused"}, Limit: 100})
		b.No(err)
		for _, id := range queuetest.IDs(leases) {
			delete(wanted, id)
		}
		return len(wanted) == 0
	})
}

// A claim looks at some keys when a level is crowded; those behind them have their turn too, and in one claim if they can.
func TestClaimReachesEveryKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Enqueue(queue.Insert{ConcurrencyKey: "busy"})
	b.One(b.W)
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 0, 'busy', null, now() from generate_series(1, 600)`)
	const keys = 1500
	b.Exec(insertJobs+`select 'work', 'lane', '', 3, 0, 'k' || lpad(n::text, 4, '0'), null, now() + case when n < $1 then interval '1 day' else '0' end
		from generate_series(1, $1) n`, keys)
	b.Enqueue(queue.Insert{ConcurrencyKey: "a"})
	first := b.Claim(b.W, 5)
	queuetest.Equal(t, "claimed of the first keys", len(first), 1)
	queuetest.Equal(t, "key", *first[0].Job().ConcurrencyKey, "a")
	var got []*queue.Lease
	for range 4 {
		got = append(got, b.Claim(b.W, 1)...)
	}
	queuetest.Equal(t, "claimed", len(got), 1)
	queuetest.Equal(t, "key", *got[0].Job().ConcurrencyKey, fmt.Sprintf("k%04d", keys))
}

// A busy key at the head of the queue holds up nothing but its own jobs.
func TestCrowdOfOneKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Enqueue(queue.Insert{ConcurrencyKey: "busy"})
	b.One(b.W)
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 5, 'busy', null, now() - interval '1 hour' from generate_series(1, 1200)`)
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 5, case when n % 3 > 0 then 'k' || n % 3 end, null, now() from generate_series(1, 30) n`)
	byKey := map[string]int{}
	for _, lease := range b.Claim(b.W, 20) {
		key := ""
		if k := lease.Job().ConcurrencyKey; k != nil {
			key = *k
		}
		byKey[key]++
	}
	queuetest.Equal(t, "claimed without a key", byKey[""], 10)
	queuetest.Equal(t, "claimed of one key", byKey["k1"], 1)
	queuetest.Equal(t, "claimed of the other", byKey["k2"], 1)
	queuetest.Equal(t, "claimed of the busy one", byKey["busy"], 0)
}

// Many jobs of a few keys leave the claim's list to others.
func TestJobsOfFewKeysDoNotFillAClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 0, 'k' || n % 2, null, now() - interval '1 hour' from generate_series(1, 200) n`)
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 0, 'other' || n, null, now() from generate_series(1, 8) n`)
	queuetest.Equal(t, "claimed, each of a key of its own", len(b.Claim(b.W, 10)), 10)
}

// What is behind a crowd is more urgent than what fills all slots.
func TestCrowdDoesNotTurnPrioritiesAround(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Enqueue(queue.Insert{ConcurrencyKey: "busy"})
	b.One(b.W)
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 5, 'busy', null, now() - interval '1 hour' from generate_series(1, 1200)`)
	urgent := b.Enqueue(queue.Insert{Priority: 5, ConcurrencyKey: "free"})
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 0, null, null, now() from generate_series(1, 100)`)
	leases := b.Claim(b.W, 5)
	queuetest.Equal(t, "claimed", len(leases), 5)
	queuetest.Equal(t, "first", leases[0].Job().ID, urgent)
}

// Between finding a job and granting it anything may happen.
func TestGrantAsksForEverythingAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	req := queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Repos: []string{"a", "paused"}, Limit: 1}
	b.Enqueue(queue.Insert{ConcurrencyKey: "busy"})
	b.One(b.W)
	b.No(pause.NewStore(b.Pool).Pause(t.Context(), pause.Pause{Scope: pause.Repo, Name: "paused"}))
	cancelled := b.Enqueue(queue.Insert{})
	_, err := b.Q.Cancel(t.Context(), cancelled)
	b.No(err)
	for what, id := range map[string]int64{
		"cancelled":             cancelled,
		"not due":               b.Enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)}),
		"its key is busy":       b.Enqueue(queue.Insert{ConcurrencyKey: "busy"}),
		"pinned elsewhere":      b.Enqueue(queue.Insert{PinnedRoot: queuetest.Root(t, b.Pool)}),
		"repository not served": b.Enqueue(queue.Insert{Repo: "b"}),
		"repository paused":     b.Enqueue(queue.Insert{Repo: "paused"}),
		"paused though begun":   b.Enqueue(queue.Insert{Repo: "paused", PinnedRoot: b.W.RootID}),
	} {
		leases, err := queue.Grant(t.Context(), b.Q, req, id)
		b.No(err)
		queuetest.Equal(t, what, len(leases), 0)
	}
	good := b.Enqueue(queue.Insert{Repo: "a"})
	b.No(pause.NewStore(b.Pool).Pause(t.Context(), pause.Pause{Scope: pause.Lane, Name: "lane"}))
	leases, err := queue.Grant(t.Context(), b.Q, req, good)
	b.No(err)
	queuetest.Equal(t, "lane paused", len(leases), 0)
	_, err = pause.NewStore(b.Pool).Resume(t.Context(), pause.Lane, "lane")
	b.No(err)
	leases, err = queue.Grant(t.Context(), b.Q, req, cancelled, good)
	b.No(err)
	queuetest.Equal(t, "nothing against it", len(leases) == 1 && leases[0].Job().ID == good, true)
}

// A worker that begins to serve a repository, or to handle a kind, finds what has been waiting for it.
func TestClaimNoticesWhatItServes(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	here := b.Enqueue(queue.Insert{Repo: "a"})
	pinned := b.Enqueue(queue.Insert{Repo: "b", PinnedRoot: b.W.RootID})
	claim := func(kinds []string, repos ...string) []int64 {
		leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: kinds, Repos: repos, Limit: 10})
		b.No(err)
		return queuetest.IDs(leases)
	}
	queuetest.Equal(t, "of another kind", len(claim([]string{"other"}, "a", "b")), 0)
	got := claim([]string{"work"}, "c")
	queuetest.Equal(t, "claimed: what is pinned here, whatever its repository", len(got) == 1 && got[0] == pinned, true)
	got = claim([]string{"work"}, "c", "a")
	queuetest.Equal(t, "claimed: what is served now", len(got) == 1 && got[0] == here, true)
	queuetest.Equal(t, "its repository", b.state(here, queue.StateRunning).Repo, "a")

	b.Enqueue(queue.Insert{Repo: "a"})
	queuetest.Equal(t, "still served", len(claim([]string{"work"}, "c", "a")), 1)
	b.Enqueue(queue.Insert{Repo: "a"})
	queuetest.Equal(t, "of a kind no more handled", len(claim([]string{"other"}, "c", "a")), 0)
	queuetest.Equal(t, "of a repository no more served", len(claim([]string{"work"}, "c")), 0)
}

// Dead entries that a look has marked are passed over uncounted, but their pages are still read one by one.
func TestClaimDoesNotPassOverTheMarkedDeadAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Exec(insertJobs + `select 'work', 'lane', '', 3, 0, null, null, now() - interval '1 hour' from generate_series(1, 40000)`)
	b.Exec(`update jobs set state = 'succeeded', finished_at = now()`)
	for range 10 {
		b.Enqueue(queue.Insert{})
	}
	m := newMeter(b)
	for range 2 {
		queue.LookNow(m.q, b.W, "lane")
		leases, _ := m.claim(1)
		queuetest.Equal(t, "claimed by a look", len(leases), 1)
	}
	queuetest.Equal(t, "the marks serve", queue.Rest(m.q, b.W, "lane", time.Hour), true)
	leases, visited := m.claim(1)
	queuetest.Equal(t, "claimed by its mark", len(leases), 1)
	if visited > enough/10 {
		t.Errorf("visited %d blocks and entries", visited)
	}
}

func TestClaimTakesTheMostUrgentOfLevelsThatComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for n := range 30 {
		low := b.Enqueue(queue.Insert{Priority: -n})
		high := b.Enqueue(queue.Insert{Priority: n + 1})
		queuetest.Equal(t, fmt.Sprint("first of round ", n), b.Claim(b.W, 1)[0].Job().ID, high)
		queuetest.Equal(t, fmt.Sprint("second of round ", n), b.Claim(b.W, 1)[0].Job().ID, low)
	}
}
