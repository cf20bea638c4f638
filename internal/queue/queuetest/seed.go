package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
)

// Pool opens a second pool.
func Pool(tb testing.TB, cfg *pgx.ConnConfig) *pgxpool.Pool {
	tb.Helper()
	pc, err := pgxpool.ParseConfig("sslmode=disable")
	if err != nil {
		tb.Fatalf("make a pool config: %v", err)
	}
	pc.ConnConfig = cfg
	pool, err := pgxpool.NewWithConfig(tb.Context(), pc)
	if err != nil {
		tb.Fatalf("open a pool: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Root binds a data root that nobody uses and returns its id.
func Root(tb testing.TB, pool *pgxpool.Pool) uuid.UUID {
	tb.Helper()
	id := uuid.New()
	if _, err := pool.Exec(tb.Context(), `insert into roots (id, host, path) values ($1, 'test', '/test')`, id); err != nil {
		tb.Fatalf("insert root: %v", err)
	}
	return id
}

// Worker makes a worker of a root, not registered yet.
func Worker(root uuid.UUID) queue.Worker {
	return queue.Worker{
		ID: uuid.New(), RootID: root, Host: "test", BootID: "boot", PIDNamespace: "ns", PID: 1, PIDStartedAt: 1, Version: "test",
	}
}

// Run writes a run of a job and pins the job by it.
func Run(t *testing.T, pool *pgxpool.Pool, l *queue.Lease, state string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	for _, seed := range []string{
		`insert into repositories (name, location) values ('demo', '/demo') on conflict do nothing`,
		`insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values ('demo-1', 'demo', 'Title', 'cli', 'orch/demo-1', 'main', 'default', 'development') on conflict do nothing`,
	} {
		if _, err := pool.Exec(t.Context(), seed); err != nil {
			t.Fatalf("insert task: %v", err)
		}
	}
	_, err := pool.Exec(t.Context(), `
		insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, state, root_id, host, boot_id, pid_namespace, finished_at, ended)
		select $1::uuid, t.id, $2, $3, 'agent', $1::uuid::text, 'development', 1, 1, $4, $5, 'test', 'boot', 'ns',
			case when $4 = 'finished' then clock_timestamp() end, case when $4 = 'finished' then 'exited' end from tasks t`,
		id, l.Job().ID, l.Job().Epoch, state, l.Worker().RootID)
	if err != nil {
		t.Fatalf("insert run: %v", err)
	}
	if err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.PinTx(t.Context(), tx, id) }); err != nil {
		t.Fatalf("pin by a run: %v", err)
	}
	return id
}

// patience bounds every wait of a test; it is no expectation.
const patience = 4 * time.Minute

// Until polls until the condition holds, and fails the test when it never does.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// Wait receives from a channel, or fails the test when nothing ever comes.
func Wait[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		tb.Fatalf("waited in vain: %s", what)
		panic("unreachable")
	}
}
