package roster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent"
	"orch/internal/agent/ledger"
	"orch/internal/agent/usage"
	"orch/internal/app/catalog"
	"orch/internal/config"
	"orch/internal/process"
	"orch/internal/process/shim"
	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/stage"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testagent"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shim" {
		os.Exit(shim.Run(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// world is a roster under the stage handler: real runs of fake agent programs, a real orch.yaml. Workspaces are plain
// directories, gates answer what they are told to.
type world struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	pool    *pgxpool.Pool
	queue   *queue.Queue
	pausing *pause.Store
	store   *task.Store
	runs    *agent.Runs
	stage   *stage.Handler
	worker  queue.Worker
	red     bool // the next gate that is asked
	crash   bool // as if the process died before it could use the next result
}

var errCrash = errors.New("crash")

const oneAgent = `agents: {coder: {preset: claude, command: [DIR/coder]}}`

// newWorld has an orch.yaml with the agents that are given; DIR in it stands for where their programs are.
func newWorld(t *testing.T, agents string) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), dir: t.TempDir(), pool: testdb.New(t)}
	w.configure(agents)
	log := slog.New(slog.DiscardHandler)
	cat, err := catalog.New(config.Data{File: filepath.Join(w.dir, "orch.yaml"), FileGiven: true}, config.Merge{}, log)
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if w.store, err = task.NewStore(w.pool, task.StoreConfig{Catalog: cat, CheckPrompt: prompt.Check}); err != nil {
		t.Fatal(err)
	}
	w.pausing = pause.NewStore(w.pool)
	w.queue = queue.New(w.pool, queue.Config{OnFailed: w.store.JobFailedTx, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w.worker = queue.Worker{
		ID: uuid.New(), RootID: uuid.New(), Host: self.Host, BootID: self.BootID, PIDNamespace: self.PIDNamespace, PID: self.PID,
		PIDStartedAt: self.StartedAt,
	}
	w.exec(`insert into roots (id, host, path) values ($1, 'host', '/root')`, w.worker.RootID)
	if w.runs, err = agent.New(agent.Config{
		Pool: w.pool, Dir: w.mkdir("runs"), RootID: w.worker.RootID, Self: self, Shim: []string{os.Args[0], "shim"}, KillGrace: time.Second,
		HomesDir: w.mkdir("homes"), Environ: append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.runs.InterruptAll(context.WithoutCancel(w.ctx)); err != nil {
			t.Error(err)
		}
	})
	roster := New(Config{
		Runs: w.runs, Catalog: cat, Pauses: w.pausing, Tasks: w.store, Usage: usage.NewStore(w.pool),
		Alone: func(_ context.Context, _ *queue.Lease, _ int64, fn func() error) error { return fn() },
	})
	w.stage = stage.NewHandler(stage.Config{
		Store: w.store, Agents: roster, Gates: w, Workspaces: w, PauseTx: roster.PauseTx,
		ConsumeTx: func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
			if w.crash {
				w.crash = false
				return errCrash
			}
			return ledger.ConsumeTx(ctx, tx, id)
		},
	})
	return w
}

// configure writes orch.yaml.
func (w *world) configure(agents string) {
	w.t.Helper()
	w.write("repos: [{name: demo, path: /srv/demo, test: none}]\n" + agents)
}

// setup gives the repository of a world with oneAgent a setup command.
func (w *world) setup(command string) {
	w.t.Helper()
	w.write("repos: [{name: demo, path: /srv/demo, test: none, setup: " + command + "}]\n" + oneAgent)
}

func (w *world) write(text string) {
	w.t.Helper()
	content := strings.ReplaceAll(text, "DIR", w.dir) + "\n"
	if err := os.WriteFile(filepath.Join(w.dir, "orch.yaml"), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// program installs the program of an agent.
func (w *world) program(name, format string, turns ...testagent.Turn) *testagent.Program {
	w.t.Helper()
	return testagent.Install(w.t, w.dir, name, testagent.Agent{Format: format, Turns: turns})
}

func (w *world) mkdir(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// Dir implements stage.Workspaces.
func (w *world) Dir(t task.Task) string { return filepath.Join(w.dir, "ws", t.Key) }

// Prepare implements stage.Workspaces.
func (w *world) Prepare(_ context.Context, t task.Task, keep bool) (stage.Workspace, error) {
	dir := w.Dir(t)
	if _, err := os.Stat(dir); keep && err == nil {
		return stage.Workspace{Dir: dir, Kept: true}, nil
	}
	return stage.Workspace{Dir: dir}, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// Inspect implements stage.Workspaces.
func (*world) Inspect(context.Context, task.Task) (stage.Head, error) {
	return stage.Head{Commit: "c0ffee"}, nil
}

// Check implements stage.Gates.
func (w *world) Check(_ context.Context, _ *queue.Lease, ref flow.GateRef, _ stage.GateSubject) (stage.GateResult, error) {
	result := stage.GateResult{Name: ref.Name, Outcome: stage.GatePass}
	if w.red {
		w.red, result.Outcome, result.Reason = false, stage.GateFail, "the gate is red"
	}
	return result, nil
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.ctx, sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.ctx, sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) add() task.Task {
	w.t.Helper()
	t, err := w.store.Create(w.ctx, task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "Do it", Body: "Please", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func (w *world) get(t task.Task) task.Task {
	w.t.Helper()
	now, err := w.store.ByID(w.ctx, t.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return now
}

// job is the task's live job.
func (w *world) job(t task.Task) *queue.Job {
	w.t.Helper()
	job, err := w.queue.ActiveForTask(w.ctx, t.ID)
	if err != nil || job == nil {
		w.t.Fatalf("no job of %s: %v", t.Key, err)
	}
	return job
}

// waitsFor is the phase of the task's queued job.
func (w *world) waitsFor(t task.Task) string {
	w.t.Helper()
	if job := w.job(t); job.Phase != nil {
		return *job.Phase
	}
	return ""
}

// claim holds the next stage job that is due; nil when there is none.
func (w *world) claim() *queue.Lease {
	w.t.Helper()
	leases, err := w.queue.Claim(w.ctx, queue.ClaimRequest{
		Worker: w.worker, Lane: task.LaneAgents, Kinds: []string{task.KindStage}, Limit: 1, Repos: []string{"demo"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(leases) == 0 {
		return nil
	}
	return leases[0]
}

// work does the next stage job that is due, as a worker would.
func (w *world) work() error {
	w.t.Helper()
	l := w.claim()
	if l == nil {
		w.t.Fatal("no job is due")
	}
	return w.do(l)
}

func (w *world) do(l *queue.Lease) error {
	w.t.Helper()
	ctx, free := l.Context(w.ctx)
	defer free(nil)
	answer := w.stage.Run(ctx, l)
	if l.Ended() {
		return answer
	}
	err := l.Tx(w.ctx, func(tx pgx.Tx) error {
		var snooze *queue.SnoozeError
		var failure *queue.Failure
		switch {
		case answer == nil:
			return l.CompleteTx(w.ctx, tx)
		case errors.As(answer, &snooze):
			return l.ReleaseTx(w.ctx, tx, queue.Release{After: snooze.After, WaitingFor: snooze.WaitingFor})
		case errors.Is(answer, queue.ErrStopping):
			return l.ReleaseTx(w.ctx, tx, queue.Release{})
		case !errors.As(answer, &failure):
			failure = &queue.Failure{Code: "internal", Err: answer}
		}
		_, err := l.RetryTx(w.ctx, tx, *failure)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return answer
}

// through does the next stage job, which has to bring its task on to its landing.
func (w *world) through(t task.Task) {
	w.t.Helper()
	if err := w.work(); err != nil || w.get(t).Stage != flow.Deploy {
		w.t.Fatalf("%v, %+v", err, w.get(t))
	}
}

// until asks until the answer is yes.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(4 * time.Minute); !is(); <-ticker.C {
		if time.Now().After(end) {
			w.t.Fatalf("didn't come: %s", what)
		}
	}
}

// due makes every queued job due.
func (w *world) due() {
	w.t.Helper()
	w.exec(`update jobs set run_at = now() where state = 'queued'`)
}

// after lets a time pass: what was to happen within it is due.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	w.exec(`update jobs set run_at = run_at - make_interval(secs => $1) where state = 'queued'`, d.Seconds())
	w.exec(`update pauses set until = until - make_interval(secs => $1)`, d.Seconds())
}

func (w *world) calls(p *testagent.Program) []testagent.Call { return p.Calls(w.t) }

// resumed is the session that a start went on with; empty when it began one.
func resumed(c testagent.Call) string {
	if at := slices.Index(c.Args, "--resume"); at >= 0 {
		return c.Args[at+1]
	}
	return ""
}

func (w *world) pauses() []pause.Pause {
	w.t.Helper()
	pauses, err := w.pausing.AgentPauses(w.ctx, []string{"coder", "spare"})
	if err != nil {
		w.t.Fatal(err)
	}
	return pauses
}
