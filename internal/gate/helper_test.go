package gate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a database with one task, a repository with commits, and a job that is held.
type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	queue  *queue.Queue
	worker queue.Worker
	taskID int64
	repo   string
	runner *shellRunner
	gates  *Registry
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t), repo: t.TempDir()}
	b.queue = queue.New(b.pool, queue.Config{})
	b.worker = queue.Worker{ID: uuid.New(), RootID: uuid.New(), Host: "host", BootID: "boot", PIDNamespace: "pid:1", PID: 1, PIDStartedAt: 1}
	b.exec(`insert into roots (id, host, path) values ($1, 'host', '/root')`, b.worker.RootID)
	b.exec(`insert into repositories (name, location) values ('demo', '/demo')`)
	b.query(&b.taskID, `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values ('demo-1', 'demo', 'title', 'cli', 'orch/demo-1', 'main', 'default', 'development') returning id`)
	b.git("init", "--quiet", "--initial-branch=main")
	b.runner = &shellRunner{bench: b, scratch: t.TempDir()}
	b.gates = New(Config{Pool: b.pool, Runner: b.runner, ConsumeTx: consumeTx})
	return b
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) query(into any, sql string, args ...any) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(into); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) git(args ...string) string {
	b.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = b.repo
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes a file and returns the subject of the new head.
func (b *bench) commit(name, content string) Subject {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.repo, name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.git("add", "--all")
	b.git("commit", "--quiet", "--message", name)
	return b.head()
}

func (b *bench) head() Subject {
	b.t.Helper()
	return Subject{
		TaskID: b.taskID, TaskKey: "demo-1", Stage: "development", Round: 1,
		Commit: b.git("rev-parse", "HEAD"), Tree: b.git("rev-parse", "HEAD^{tree}"), BaseCommit: b.git("rev-list", "--max-parents=0", "HEAD"),
	}
}

// claim enqueues a job and holds it.
func (b *bench) claim() *queue.Lease {
	b.t.Helper()
	if _, err := b.queue.Enqueue(b.t.Context(), queue.Insert{Kind: "stage", Lane: "agents", TaskID: b.taskID}); err != nil {
		b.t.Fatal(err)
	}
	leases, err := b.queue.Claim(b.t.Context(), queue.ClaimRequest{Worker: b.worker, Lane: "agents", Kinds: []string{"stage"}, Limit: 1})
	if err != nil || len(leases) != 1 {
		b.t.Fatalf("claimed %d jobs: %v", len(leases), err)
	}
	return leases[0]
}

func (b *bench) check(l *queue.Lease, d Definition, s Subject) Result {
	b.t.Helper()
	result, err := b.gates.Check(b.t.Context(), l, d, s)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) evidence() []Evidence {
	b.t.Helper()
	list, err := b.gates.Evidence(b.t.Context(), b.taskID, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

func (b *bench) unconsumed() (n int) {
	b.t.Helper()
	b.query(&n, `select count(*) from runs where consumed_at is null`)
	return n
}

func consumeTx(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error {
	tag, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp() where id = $1 and consumed_at is null`, runID)
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("the run was consumed before")
	}
	return err
}

// shellRunner runs commands in a clone of exactly the asked commit. Like the real one it is re-entrant by task and key:
// the result of a run that wasn't consumed is given again.
type shellRunner struct {
	bench   *bench
	scratch string
	why     string // what the shim says instead of exited

	mu      sync.Mutex
	results map[uuid.UUID]CommandResult
	asked   []CommandRun
	started int
}

func (r *shellRunner) RunCommand(ctx context.Context, l *queue.Lease, c CommandRun) (CommandResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, c)
	var id uuid.UUID
	err := r.bench.pool.QueryRow(ctx, `select id from runs where task_id = $1 and key = $2 and consumed_at is null`, c.TaskID, c.Key).Scan(&id)
	if err == nil {
		return r.results[id], nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return CommandResult{}, err
	}
	r.started++
	result := CommandResult{RunID: uuid.New(), Why: "exited", Duration: time.Millisecond}
	if r.why != "" {
		result.Why = r.why
	} else {
		result.OutputTail, result.ExitCode = r.shell(ctx, c)
	}
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		w := l.Worker()
		_, err := tx.Exec(ctx, `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, state, root_id, host, boot_id, pid_namespace, finished_at, ended)
			values ($1, $2, $3, $4, 'gate', $5, $6, $7, 1, 'finished', $8, 'host', 'boot', 'pid:1', now(), $9)`,
			result.RunID, c.TaskID, l.Job().ID, l.Job().Epoch, c.Key, c.Stage, c.Round, w.RootID, result.Why)
		if err != nil {
			return err
		}
		return l.PinTx(ctx, tx, result.RunID)
	})
	if r.results == nil {
		r.results = map[uuid.UUID]CommandResult{}
	}
	r.results[result.RunID] = result
	return result, err
}

func (r *shellRunner) shell(ctx context.Context, c CommandRun) (string, *int) {
	dir := filepath.Join(r.scratch, uuid.NewString())
	r.bench.git("clone", "--quiet", "--no-checkout", r.bench.repo, dir)
	r.bench.git("-C", dir, "checkout", "--quiet", "--detach", c.Commit)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", c.Command)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code < 0 {
		return out.String(), nil
	}
	return out.String(), &code
}
