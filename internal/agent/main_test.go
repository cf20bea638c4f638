package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent/ledger"
	"orch/internal/process"
	"orch/internal/process/shim"
	"orch/internal/queue"
	"orch/internal/testdb"
)

// patience bounds every wait of a test; it is no expectation.
const patience = 4 * time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Run(os.Args[2]))
		case "executor": // claims a job and executes a run in a process of its own, to be killed
			if err := executor(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

func executor(url, root, dir, work string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	self, err := process.Self()
	if err != nil {
		return err
	}
	runs, err := New(testConfig(pool, uuid.MustParse(root), dir, self))
	if err != nil {
		return err
	}
	q := queue.New(pool, queue.Config{})
	worker := testWorker(uuid.MustParse(root), self)
	if err := q.RegisterWorker(ctx, worker); err != nil {
		return err
	}
	leases, err := q.Claim(ctx, queue.ClaimRequest{Worker: worker, Lane: "agents", Kinds: []string{"stage"}, Limit: 1})
	if err != nil || len(leases) != 1 {
		return fmt.Errorf("claimed %d: %w", len(leases), err)
	}
	_, err = runs.Execute(ctx, leases[0], request(*leases[0].Job().TaskID, work, waiting).request())
	return err
}

// waiting is a program that ends when somebody tells it to.
const waiting = `echo x >> started; echo first; until [ -e go ]; do sleep 0.01; done; echo last; exit 5`

func testConfig(pool *pgxpool.Pool, root uuid.UUID, dir string, self process.Identity) Config {
	return Config{
		Pool: pool, Dir: dir, RootID: root, Self: self, Shim: []string{os.Args[0], "shim"}, KillGrace: 200 * time.Millisecond,
		// A race detector would otherwise hold each exit up for a second.
		Environ: append(os.Environ(), "GORACE=atexit_sleep_ms=0", "ORCH_API_TOKEN=secret"),
	}
}

// shimEnv is for shims that a test starts itself.
func shimEnv() []string { return []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"} }

func testWorker(root uuid.UUID, self process.Identity) queue.Worker {
	return queue.Worker{
		ID: uuid.New(), RootID: root, Host: self.Host, BootID: self.BootID, PIDNamespace: self.PIDNamespace, PID: self.PID,
		PIDStartedAt: self.StartedAt, Version: "test", Lanes: []string{"agents"},
	}
}

// asked is a request whose program is known from the start.
type asked struct {
	Request
	Program
	Prepare func(ctx context.Context) error
}

func (a asked) request() Request {
	a.Start = func(ctx context.Context) (Program, error) {
		if a.Prepare == nil {
			return a.Program, nil
		}
		return a.Program, a.Prepare(ctx)
	}
	return a.Request
}

func request(task int64, work, script string) asked {
	return asked{
		Request: Request{Purpose: PurposeAgent, Key: "stage:development:1", TaskID: task, Stage: "development", Round: 1},
		Program: Program{
			Agent: "coder", Argv: []string{"sh", "-c", script}, Dir: work, Inherit: []string{"GORACE", "ORCH_API_TOKEN"},
			Plain: []string{"GORACE"},
		},
	}
}

// bench is a database with one task and its job, and a data root to run it in.
type bench struct {
	pool   *pgxpool.Pool
	queue  *queue.Queue
	runs   *Runs
	worker queue.Worker
	root   uuid.UUID
	dir    string
	work   string
	task   int64
}

func newBench(t *testing.T, configure ...func(*Config)) *bench {
	t.Helper()
	b := &bench{pool: testdb.New(t), root: uuid.New(), dir: t.TempDir(), work: t.TempDir()}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(b.pool, b.root, b.dir, self)
	for _, change := range configure {
		change(&cfg)
	}
	if b.runs, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	b.queue = queue.New(b.pool, queue.Config{})
	b.exec(t, `insert into roots (id, host, path) values ($1, 'here', '/somewhere')`, b.root)
	b.exec(t, `insert into repositories (name, location) values ('demo', '/demo')`)
	err = b.pool.QueryRow(t.Context(), `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values ('demo-1', 'demo', 'Title', 'cli', 'orch/demo-1', 'main', 'default', 'development') returning id`).Scan(&b.task)
	if err != nil {
		t.Fatal(err)
	}
	b.worker = testWorker(b.root, self)
	if err := b.queue.RegisterWorker(t.Context(), b.worker); err != nil {
		t.Fatal(err)
	}
	_, err = b.queue.Enqueue(t.Context(), queue.Insert{
		Kind: "stage", Lane: "agents", Args: struct{}{}, TaskID: b.task, DedupeKey: queue.TaskKey(b.task),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.endAll(t) })
	return b
}

func (b *bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// endAll leaves no process behind, however the test ended.
func (b *bench) endAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("clean-up took too long"))
	defer cancel()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Error(err)
	}
	for _, entry := range entries {
		r, err := process.OpenRun(filepath.Join(b.dir, entry.Name()))
		if err != nil {
			continue
		}
		if err := r.Stop(ctx, process.WhyInterrupted); err != nil {
			t.Error(err)
		}
		if st, err := r.State(); err == nil && st.Status == process.StatusAlive {
			_, _ = r.Wait(ctx)
		}
		// A shim lives a little longer than its run, and so does the goroutine that reaps it.
		for st, err := r.State(); err == nil && process.Probe(st.PIDs.Shim) == process.Alive; {
			if err := pause(ctx, 5*time.Millisecond); !errors.Is(err, errAgain) {
				t.Fatal(err)
			}
		}
	}
}

func (b *bench) claim(t *testing.T) *queue.Lease {
	t.Helper()
	leases, err := b.queue.Claim(t.Context(), queue.ClaimRequest{Worker: b.worker, Lane: "agents", Kinds: []string{"stage"}, Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d: %v", len(leases), err)
	}
	return leases[0]
}

func (b *bench) request(script string) asked { return request(b.task, b.work, script) }

func (b *bench) execute(t *testing.T, l *queue.Lease, req asked) Result {
	t.Helper()
	res, err := b.runs.Execute(bound(t), l, req.request())
	if err != nil {
		t.Fatalf("execute: %v", err)
	}
	return res
}

// answer is what Execute returned.
type answer struct {
	Result
	err error
}

// executing calls Execute in the lease's context, as a worker does.
func (b *bench) executing(t *testing.T, l *queue.Lease, req asked) <-chan answer {
	t.Helper()
	ctx, free := l.Context(bound(t))
	answers := make(chan answer, 1)
	go func() {
		defer free(nil)
		res, err := b.runs.Execute(ctx, l, req.request())
		answers <- answer{res, err}
	}()
	return answers
}

func (b *bench) consume(t *testing.T, l *queue.Lease, id uuid.UUID) error {
	t.Helper()
	return l.Tx(t.Context(), func(tx pgx.Tx) error {
		if err := ledger.ConsumeTx(t.Context(), tx, id); err != nil {
			return err
		}
		return l.UnpinTx(t.Context(), tx)
	})
}

func (b *bench) list(t *testing.T) []Run {
	t.Helper()
	runs, err := b.runs.List(t.Context(), b.task)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// running waits until the newest run's pids are noted.
func (b *bench) running(t *testing.T) Run {
	t.Helper()
	var run Run
	eventually(t, "running", func() bool {
		runs := b.list(t)
		if len(runs) > 0 {
			run = runs[len(runs)-1]
		}
		return run.State == StateRunning
	})
	return run
}

func (b *bench) letGo(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantStarted counts how often the program ran.
func (b *bench) wantStarted(t *testing.T, times int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.work, "started"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got := len(raw) / len("x\n"); got != times {
		t.Fatalf("the program ran %d times, want %d", got, times)
	}
}

func (b *bench) identity(t *testing.T, run Run) process.Identity {
	t.Helper()
	if run.PID == nil || run.PIDStartedAt == nil {
		t.Fatalf("no pid noted: %+v", run)
	}
	return process.Identity{Host: run.Host, BootID: run.BootID, PIDNamespace: run.PIDNamespace, PID: *run.PID, StartedAt: *run.PIDStartedAt}
}

func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("test took too long"))
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx := bound(t)
	for !cond() {
		if err := pause(ctx, 5*time.Millisecond); !errors.Is(err, errAgain) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// killedExecutor starts another process that executes the job, and kills it once the program runs.
func (b *bench) killedExecutor(t *testing.T) Run {
	t.Helper()
	cmd := exec.Command(os.Args[0], "executor", testdb.URL(testdb.ConnConfig(b.pool)), b.root.String(), b.dir, b.work)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	run := b.running(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return run
}

func text(code *int) string {
	if code == nil {
		return "none"
	}
	return strconv.Itoa(*code)
}
