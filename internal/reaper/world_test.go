package reaper_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/process/shim"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/reaper"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "shim" {
		os.Exit(shim.Run(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// waiting is a program that ends when somebody tells it to.
const waiting = `read word < go; exit 5`

// world is a database, and a data root with real runs in it.
type world struct {
	t     *testing.T
	pool  *pgxpool.Pool
	tasks *task.Store
	queue *queue.Queue
	runs  *agent.Runs
	self  process.Identity
	root  uuid.UUID
	dir   string // of the runs
	log   *lines

	passed atomic.Int64 // that the boot clock of its reapers is ahead

	mu     sync.Mutex
	reaped []reaper.Reaped
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []map[string]any
}

func (l *lines) Write(raw []byte) (int, error) {
	var line map[string]any
	if err := json.Unmarshal(raw, &line); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	return len(raw), nil
}

// of lists those with that message.
func (l *lines) of(msg string) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for _, line := range l.all {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

func newWorld(t *testing.T, configure ...func(*agent.Config)) *world {
	t.Helper()
	w := &world{t: t, pool: testdb.New(t), root: uuid.New(), dir: t.TempDir(), log: &lines{}}
	var err error
	if w.self, err = process.Self(); err != nil {
		t.Fatal(err)
	}
	w.tasks, err = task.NewStore(w.pool, task.StoreConfig{
		Pipelines: task.Pipelines{flow.Short("default", "coder", "true")}, MaxAttempts: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue.New(w.pool, queue.Config{LeaseTTL: time.Hour, OnFailed: w.tasks.JobFailedTx})
	cfg := agent.Config{
		Pool: w.pool, Dir: w.dir, RootID: w.root, Self: w.self, Shim: runtest.Shim(), KillGrace: 200 * time.Millisecond,
		Environ: append(os.Environ(), "GORACE=atexit_sleep_ms=0"), Logger: slog.New(slog.NewJSONHandler(w.log, nil)),
	}
	for _, change := range configure {
		change(&cfg)
	}
	if w.runs, err = agent.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.exec(`insert into roots (id, host, path) values ($1, 'here', '/somewhere')`, w.root)
	t.Cleanup(w.endAll)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// is checks a single value.
func (w *world) is(what, want, sql string, args ...any) {
	w.t.Helper()
	var got *string
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&got); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if got == nil {
		got = new(string)
	}
	if *got != want {
		w.t.Errorf("%s: %q, want %q", what, *got, want)
	}
}

// jobIs checks what a job has become: state, attempt, recoveries, and whether a run pins it.
func (w *world) jobIs(id int64, want string) {
	w.t.Helper()
	w.is("job", want, `select state || ' attempt ' || attempt || ' recoveries ' || recoveries || case when run_id is null then '' else ' pinned' end
		from jobs where id = $1`, id)
}

// runIs checks a run: state, outcome, consumed.
func (w *world) runIs(id uuid.UUID, want string) {
	w.t.Helper()
	w.is("run", want, `select state::text || coalesce(' ' || outcome, '') || case when consumed_at is null then '' else ' consumed' end
		from runs where id = $1`, id)
}

// jobs are those that it looks at and takes.
type jobs struct {
	*queue.Queue
	*look.Store
}

// through are the jobs that a pool of their own leads to.
func through(pool *pgxpool.Pool) jobs {
	return jobs{queue.New(pool, queue.Config{}), look.NewStore(pool)}
}

// reaper makes one that keeps what it reaps.
func (w *world) reaper(configure ...func(*reaper.Config)) *reaper.Reaper {
	cfg := reaper.Config{
		Queue: jobs{w.queue, look.NewStore(w.pool)}, Runs: w.runs, Self: w.self, RootID: w.root, Fresh: time.Minute, Recover: w.runs.Recover,
		Describe: w.describe, OnReapTx: w.keep,
		Ceiling:   func(context.Context) time.Duration { return time.Hour },
		BootClock: func() int64 { return process.BootClock() + w.passed.Load() }, Logger: slog.New(slog.NewJSONHandler(w.log, nil)),
	}
	for _, change := range configure {
		change(&cfg)
	}
	return reaper.New(cfg)
}

// pass lets time go by, by the boot clock.
func (w *world) pass(d time.Duration) { w.passed.Add(int64(d)) }

func (w *world) keep(_ context.Context, _ pgx.Tx, r reaper.Reaped) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reaped = append(w.reaped, r)
	return nil
}

func (w *world) describe(ctx context.Context, ids []int64) (map[int64]reaper.Subject, error) {
	subjects := map[int64]reaper.Subject{}
	for _, id := range ids {
		t, err := w.tasks.ByID(ctx, id)
		if err != nil {
			return nil, err
		}
		subjects[id] = reaper.Subject{Task: t.Key, Repo: t.Repo, Branch: t.Branch}
	}
	return subjects, nil
}

// tick does some ticks.
func (w *world) tick(r *reaper.Reaper, n int) {
	w.t.Helper()
	for range n {
		if err := r.Tick(runtest.Bound(w.t)); err != nil {
			w.t.Fatalf("tick: %v", err)
		}
	}
}

// task adds one, whose job is queued.
func (w *world) task() int64 {
	w.t.Helper()
	t, err := w.tasks.Create(w.t.Context(), task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "Do it", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t.ID
}

// worker registers one that is this process, or another one.
func (w *world) worker(change ...func(*queue.Worker)) queue.Worker {
	w.t.Helper()
	worker := queue.Worker{
		ID: uuid.New(), RootID: w.root, Host: w.self.Host, BootID: w.self.BootID, PIDNamespace: w.self.PIDNamespace,
		PID: w.self.PID, PIDStartedAt: w.self.StartedAt, Version: "test", Lanes: []string{"agents", "system"},
	}
	for _, c := range change {
		c(&worker)
	}
	if err := w.queue.RegisterWorker(w.t.Context(), worker); err != nil {
		w.t.Fatal(err)
	}
	return worker
}

// dead makes it a process that has ended.
func dead(t *testing.T) func(*queue.Worker) {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.IdentityOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	return func(w *queue.Worker) { w.PID, w.PIDStartedAt = id.PID, id.StartedAt }
}

// elsewhere makes it one of another machine.
func elsewhere(root uuid.UUID) func(*queue.Worker) {
	return func(w *queue.Worker) { w.RootID, w.Host, w.BootID, w.PIDNamespace = root, "other", "other", "pid:[1]" }
}

// otherRoot is one of another host.
func (w *world) otherRoot() uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	w.exec(`insert into roots (id, host, path) values ($1, 'other', '/elsewhere')`, id)
	return id
}

func (w *world) claim(worker queue.Worker) *queue.Lease {
	w.t.Helper()
	for _, lane := range []string{"agents", "system"} {
		leases, err := w.queue.Claim(w.t.Context(), queue.ClaimRequest{
			Worker: worker, Lane: lane, Kinds: []string{task.KindStage, "work"}, Repos: []string{"demo"}, Limit: 1,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(leases) == 1 {
			return leases[0]
		}
	}
	w.t.Fatal("nothing to claim")
	return nil
}

// plain is a running job without a run or a task.
func (w *world) plain(worker queue.Worker) *queue.Lease {
	w.t.Helper()
	if _, err := w.queue.Enqueue(w.t.Context(), queue.Insert{Kind: "work", Lane: "system"}); err != nil {
		w.t.Fatal(err)
	}
	return w.claim(worker)
}

// expire has the job's lease run out, by the database's clock.
func (w *world) expire(id int64) {
	w.t.Helper()
	w.exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second' where id = $1`, id)
}

// renew is a beat.
func (w *world) renew(id int64) {
	w.t.Helper()
	w.exec(`update jobs set lease_expires_at = clock_timestamp() + interval '1 hour' where id = $1`, id)
}

// longGranted makes the job one that was granted a while ago.
func (w *world) longGranted(id int64) {
	w.t.Helper()
	w.exec(`update jobs set started_at = started_at - interval '2 minutes' where id = $1`, id)
}

func (w *world) reapedAre(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for _, r := range w.reaped {
		got = append(got, r.Reason+" "+r.Outcome)
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		w.t.Errorf("reaped: %v, want %v", got, want)
	}
}

// endAll leaves no process behind, however the test ended.
func (w *world) endAll() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), runtest.Patience, errors.New("clean-up took too long"))
	defer cancel()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Error(err)
	}
	for _, entry := range entries {
		r, err := process.OpenRun(filepath.Join(w.dir, entry.Name()))
		if err != nil {
			continue
		}
		if err := r.Stop(ctx, process.WhyInterrupted); err != nil {
			w.t.Error(err)
		}
		if st, err := r.State(); err == nil && st.Status == process.StatusAlive {
			_ = process.Wake(st.PIDs.Shim)
			_, _ = r.Wait(ctx)
		}
		_ = r.EndRemains(ctx) // nothing, mostly
		if st, err := r.State(); err == nil && !st.PIDs.Shim.IsZero() {
			for tick := time.NewTicker(5 * time.Millisecond); process.Probe(st.PIDs.Shim) == process.Alive && ctx.Err() == nil; <-tick.C {
			}
		}
	}
}
