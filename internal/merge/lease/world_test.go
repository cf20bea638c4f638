package lease

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a database with a queue, in which merge jobs of tasks compete for one target.
type world struct {
	t     *testing.T
	pool  *pgxpool.Pool
	queue *queue.Queue
	store *Store
	root  uuid.UUID
	log   *bytes.Buffer
}

const (
	repoName = "demo"
	lane     = "merge"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: testdb.New(t), root: uuid.New(), log: &bytes.Buffer{}}
	w.queue = queue.New(w.pool, queue.Config{})
	w.store = NewStore(w.pool, Config{Logger: slog.New(slog.NewJSONHandler(w.log, nil))})
	w.exec(`insert into roots (id, host, path) values ($1, 'here', '/root')`, w.root)
	w.exec(`insert into repositories (name, location) values ($1, '/repo')`, repoName)
	return w
}

func (w *world) key(task int64) string { return fmt.Sprintf("%s-%d", repoName, task) }

// add makes a task and its merge job.
func (w *world) add() int64 {
	w.t.Helper()
	var id int64
	w.row(&id, `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values (gen_random_uuid()::text, $1, 'a task', 'api', '', 'main', 'default', 'deploy') returning id`, repoName)
	w.exec(`update tasks set key = $2, branch = $3 where id = $1`, id, w.key(id), w.branch(id))
	_, err := w.queue.Enqueue(w.t.Context(), queue.Insert{
		Kind: "merge", Lane: lane, Args: map[string]int64{"task_id": id}, TaskID: id, DedupeKey: queue.TaskKey(id),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) branch(task int64) string { return "orch/" + w.key(task) }

func (w *world) mustClaim() *queue.Lease {
	w.t.Helper()
	worker := queue.Worker{
		ID: uuid.New(), RootID: w.root, Host: "here", BootID: "boot", PIDNamespace: "ns", PID: os.Getpid(),
		PIDStartedAt: 1, Version: "test", Lanes: []string{lane},
	}
	if err := w.queue.RegisterWorker(w.t.Context(), worker); err != nil {
		w.t.Fatal(err)
	}
	leases, err := w.queue.Claim(w.t.Context(), queue.ClaimRequest{
		Worker: worker, Lane: lane, Kinds: []string{"merge"}, Limit: 1,
	})
	if err != nil || len(leases) != 1 {
		w.t.Fatalf("claimed %d merge jobs, %v", len(leases), err)
	}
	return leases[0]
}

// take tries to acquire the merge lease for a task's job, whose attempt it opens.
func (w *world) take(l *queue.Lease, task int64) (got *Right, position int) {
	w.t.Helper()
	got, position, err := w.tryTake(l, task)
	if err != nil {
		w.t.Fatal(err)
	}
	return got, position
}

func (w *world) tryTake(l *queue.Lease, task int64) (got *Right, position int, err error) {
	w.t.Helper()
	ctx := context.Background()
	turn := Turn{TaskID: task, Repo: repoName, Target: "main", Branch: w.branch(task)}
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, method)
			values ($1, $2, $3, $4, $5, $6, 'rebase')
			on conflict (task_id) where finished_at is null do update set job_epoch = excluded.job_epoch
			returning id`,
			task, l.Job().ID, l.Job().Epoch, turn.Repo, turn.Target, turn.Branch).Scan(&turn.Attempt)
		if err != nil {
			return err
		}
		got, position, _, err = w.store.AcquireTx(ctx, tx, l, turn)
		return err
	})
	return got, position, err
}

// reap puts a running job back into the queue, due at once.
func (w *world) reap(l *queue.Lease) {
	w.t.Helper()
	jobs, err := queuetest.TakeHeld(w.t.Context(), w.pool, w.queue, l.Worker().ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, job := range jobs {
		w.exec(`update jobs set run_at = now(), recoveries = 0 where id = $1`, job.ID)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) row(into any, sql string, args ...any) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(into); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	var s string
	w.row(&s, `select coalesce((`+sql+`)::text, '')`, args...)
	return s
}
