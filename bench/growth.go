package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
)

const (
	claims    = 300 // of each case, after some to warm up
	warmUps   = 20
	claimSize = 10
)

// growthCase is a table that a claim has to find its jobs in.
type growthCase struct {
	name  string
	rows  int                 // how many of the backlog
	sql   string              // inserts them; $1 is rows
	claim func(*queue.Insert) // of the jobs that are claimed beside the backlog; nil: the backlog itself is claimed
}

const backlog = `insert into jobs (kind, lane, max_attempts, priority, concurrency_key, pinned_root, repo, run_at) `

func cases(scale int) []growthCase {
	beside := func(*queue.Insert) {}
	free := backlog + `select 'noop', 'bench', 3, 0, null, null, '', now() - interval '1 hour' + n * interval '1 us' from generate_series(1, $1::int) n`
	finished := `insert into jobs (kind, lane, max_attempts, state, finished_at) select 'noop', 'bench', 3, 'succeeded', now() from generate_series(1, $1::int)`
	small := scale / 10
	return []growthCase{
		{"empty but for the claimed", 0, `select $1::int`, beside},
		{"queued", small, free, nil},
		{"queued", scale, free, nil},
		{"finished", scale, finished, beside},
		{"finished", 10 * scale, finished, beside},
		{"behind one running key", small, backlog + `select 'noop', 'bench', 3, 9, 'busy', null, '', now() from generate_series(1, $1::int)`, beside},
		{
			"behind one running key, keyed jobs claimed", small, backlog + `select 'noop', 'bench', 3, 9, 'busy', null, '', now() from generate_series(1, $1::int)`,
			func(in *queue.Insert) { in.ConcurrencyKey = uuid.NewString() },
		},
		{"pinned elsewhere", small, backlog + `select 'noop', 'bench', 3, 9, null, gen_random_uuid(), '', now() from generate_series(1, $1::int)`, beside},
		{"not due, of a higher priority", scale, backlog + `select 'noop', 'bench', 3, 9, null, null, '', now() + interval '1 day' from generate_series(1, $1::int)`, beside},
		{"not due, a key each", small, backlog + `select 'noop', 'bench', 3, 9, 'key' || n, null, '', now() + interval '1 day' from generate_series(1, $1::int) n`, beside},
		{"of an unhandled kind", small, backlog + `select 'unhandled', 'bench', 3, 9, null, null, '', now() from generate_series(1, $1::int)`, beside},
		{"of a repository not served", small, backlog + `select 'noop', 'bench', 3, 9, null, null, 'elsewhere', now() from generate_series(1, $1::int)`, beside},
	}
}

func growth(ctx context.Context, s *server, scale int, hold time.Duration) error {
	fmt.Printf("claim of %d jobs, and their completion in one flush; ms, %d times\n\n", claimSize, claims)
	fmt.Printf("%10s  %-46s  %9s  %6s  %14s  %6s\n", "rows", "of what", "claim p50", "p99", "completion p50", "p99")
	for _, c := range cases(scale) {
		claim, end, err := grow(ctx, s, c)
		if err != nil {
			return fmt.Errorf("%d %s: %w", c.rows, c.name, err)
		}
		fmt.Printf("%10d  %-46s  %9.2f  %6.2f  %14.2f  %6.2f\n", c.rows, c.name,
			ms(percentile(claim, 50)), ms(percentile(claim, 99)), ms(percentile(end, 50)), ms(percentile(end, 99)))
	}
	return held(ctx, s, hold)
}

// grow measures one case in a database of its own.
func grow(ctx context.Context, s *server, c growthCase) (claim, end []time.Duration, err error) {
	q, err := openOrch(ctx, s, "growth")
	if err != nil {
		return nil, nil, err
	}
	defer q.close()
	if _, err := q.pool.Exec(ctx, c.sql, c.rows); err != nil {
		return nil, nil, err
	}
	m := newClaimer(q)
	defer m.done.Close(ctx)
	if err := m.holdKey(ctx); err != nil {
		return nil, nil, err
	}
	if c.claim != nil {
		if err := m.enqueue(ctx, (claims+warmUps)*claimSize, c.claim); err != nil {
			return nil, nil, err
		}
	}
	if _, err := q.pool.Exec(ctx, `vacuum analyze jobs`); err != nil {
		return nil, nil, err
	}
	for range warmUps {
		if _, _, err := m.once(ctx); err != nil {
			return nil, nil, err
		}
	}
	for range claims {
		took, ended, err := m.once(ctx)
		if err != nil {
			return nil, nil, err
		}
		claim, end = append(claim, took), append(end, ended)
	}
	return claim, end, nil
}

// claimer claims and completes as one worker.
type claimer struct {
	*orchQueue
	self queue.Worker
	done *queue.Completer
}

func newClaimer(q *orchQueue) *claimer {
	self := q.identity()
	return &claimer{q, self, queue.NewCompleter(q.queue, self, func() int { return 0 })}
}

// holdKey occupies the key that a case's backlog may wait behind.
func (m *claimer) holdKey(ctx context.Context) error {
	if _, err := m.queue.Enqueue(ctx, queue.Insert{Kind: "holder", Lane: lane, ConcurrencyKey: "busy"}); err != nil {
		return err
	}
	_, err := m.claim(ctx, "holder", 1)
	return err
}

func (m *claimer) enqueue(ctx context.Context, n int, change func(*queue.Insert)) error {
	jobs := make([]queue.Insert, n)
	for i := range jobs {
		jobs[i] = queue.Insert{Kind: kind, Lane: lane}
		change(&jobs[i])
	}
	_, err := bulk.EnqueueMany(ctx, m.pool, jobs)
	return err
}

var errShort = errors.New("a claim brought fewer jobs than there are")

func (m *claimer) claim(ctx context.Context, kind string, n int) ([]*queue.Lease, error) {
	leases, err := m.queue.Claim(ctx, queue.ClaimRequest{Worker: m.self, Lane: lane, Kinds: []string{kind}, Limit: n})
	if err == nil && len(leases) < n {
		err = errShort
	}
	return leases, err
}

func (m *claimer) once(ctx context.Context) (claim, end time.Duration, err error) {
	begin := time.Now()
	leases, err := m.claim(ctx, kind, claimSize)
	if err != nil {
		return 0, 0, err
	}
	claim = time.Since(begin)
	begin = time.Now()
	err = m.complete(ctx, leases)
	return claim, time.Since(begin), err
}

// complete ends the jobs together.
func (m *claimer) complete(ctx context.Context, leases []*queue.Lease) error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() { errs[i] = m.done.Complete(ctx, l) })
	}
	all.Wait()
	return errors.Join(errs...)
}
