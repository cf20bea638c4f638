package merge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// world is one repository with its mirror, a database, a queue and what the handler is given.
type world struct {
	t      *testing.T
	pool   *pgxpool.Pool
	queue  *queue.Queue
	leases *lease.Store
	store  *attempt.Store
	git    *gitcmd.Git
	repo   *testgit.Repo
	root   uuid.UUID
	mirror string
	tasks  *taskTable
	tester *shellTester
	forge  forge.Forge
	land   bool
	home   bool // no other root knows the repository
	batch  int
	log    *logBuffer
}

const repoName = "demo"

// newWorld makes a world whose repository is bare, or has the target checked out.
func newWorld(t *testing.T, bare bool) *world {
	t.Helper()
	return newWorldOn(t, bare, testdb.New(t))
}

func newWorldOn(t *testing.T, bare bool, pool *pgxpool.Pool) *world {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"README": "demo\n", "shared": "one\ntwo\nthree\n"}
	w := &world{t: t, pool: pool, git: g, root: uuid.New(), forge: local.New(g, local.Config{}), land: true, log: &logBuffer{}}
	if bare {
		w.repo = testgit.NewBare(t, files)
	} else {
		w.repo = testgit.New(t, files)
	}
	w.mirror = filepath.Join(t.TempDir(), "mirror.git")
	w.queue = queue.New(w.pool, queue.Config{})
	w.lockFor(0)
	w.tasks = &taskTable{pool: w.pool, head: map[int64]string{}}
	w.tester = &shellTester{w: w, command: "true"}
	w.exec(`insert into roots (id, host, path) values ($1, 'here', '/root')`, w.root)
	w.exec(`insert into repositories (name, location) values ($1, $2)`, repoName, w.repo.Dir)
	m := w.openMirror()
	if err := m.Fetch(t.Context(), w.repo.Dir); err != nil {
		t.Fatal(err)
	}
	return w
}

// lockFor makes the stores, with a time to live of the merge lease; 0 is the default.
func (w *world) lockFor(ttl time.Duration) {
	w.leases = lease.NewStore(w.pool, lease.Config{TTL: ttl, Logger: w.log.logger()})
	w.store = attempt.NewStore(w.leases)
}

func (w *world) openMirror() *git.Mirror {
	w.t.Helper()
	m, err := git.OpenMirror(context.Background(), w.git, w.mirror)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// Open implements build.Mirrors.
func (w *world) Open(ctx context.Context, _ forge.Repo) (*git.Mirror, error) {
	return git.OpenMirror(ctx, w.git, w.mirror)
}

// Definition implements Catalog.
func (w *world) Definition(context.Context, Task) (Definition, error) {
	return Definition{
		Repo: forge.Repo{Name: repoName, Location: w.repo.Dir, Base: "main"}, Target: "main",
		Test: w.tester.command, Land: w.land, Batch: w.batch, Home: w.home,
	}, nil
}

func (w *world) config() Config {
	return Config{
		Store: w.store, Tasks: w.tasks, Mirrors: w, Catalog: w, Tester: w.tester, Forge: w.forge,
		Committer: git.Identity{Name: "orch", Email: "orch@localhost"}, Owner: "test", Logger: w.log.logger(),
		// Long, so that a wake-up that doesn't come is noticed.
		WaitPoll: 2 * time.Minute, RetryMin: 2 * time.Minute,
	}
}

// told has at called with the points of a landing.
func told(at func(p point)) func(string) {
	if at == nil {
		return nil
	}
	return func(p string) { at(point(strings.TrimPrefix(p, "merge:"))) }
}

// handler makes a handler that calls at when it reaches a point.
func (w *world) handler(at func(p point)) *Handler {
	w.t.Helper()
	cfg := w.config()
	cfg.At = told(at)
	h, err := NewHandler(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// add makes a task whose branch has one commit with files on the repository's main, and its merge job.
func (w *world) add(files map[string]string) int64 {
	w.t.Helper()
	return w.addWith(func(work *testgit.Repo) { work.Commit("work", files) })
}

func (w *world) addWith(change func(work *testgit.Repo)) int64 {
	w.t.Helper()
	var id int64
	w.row(&id, `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values (gen_random_uuid()::text, $1, 'a task', 'api', '', 'main', 'default', 'deploy') returning id`, repoName)
	key := w.key(id)
	w.exec(`update tasks set key = $2, branch = $3 where id = $1`, id, key, "orch/"+key)
	work := w.clone()
	change(work)
	work.Git("push", "-q", w.mirror, "HEAD:refs/heads/orch/"+key)
	w.enqueue(id)
	return id
}

func (w *world) key(task int64) string { return fmt.Sprintf("%s-%d", repoName, task) }

func (w *world) enqueue(task int64) {
	w.t.Helper()
	_, err := w.queue.Enqueue(w.t.Context(), queue.Insert{
		Kind: Kind, Lane: Lane, Args: Args{TaskID: task, Stage: "deploy", Round: 1}, TaskID: task,
		DedupeKey: queue.TaskKey(task),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// clone is a checkout of the repository, for a person or an agent to work in.
func (w *world) clone() *testgit.Repo {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	w.repo.Git("clone", "-q", w.repo.Dir, dir)
	return testgit.Open(w.t, dir)
}

// push lets a person move main.
func (w *world) push(files map[string]string) string {
	w.t.Helper()
	if w.repo.Git("rev-parse", "--is-bare-repository") == "false" {
		return w.repo.Commit("a person's", files)
	}
	work := w.clone()
	head := work.Commit("a person's", files)
	work.Git("push", "-q", "origin", "HEAD:main")
	return head
}

func (w *world) main() string { return w.repo.Git("rev-parse", "refs/heads/main") }

func (w *world) worker() queue.Worker {
	w.t.Helper()
	worker := queue.Worker{
		ID: uuid.New(), RootID: w.root, Host: "here", BootID: "boot", PIDNamespace: "ns", PID: os.Getpid(),
		PIDStartedAt: 1, Version: "test", Lanes: []string{Lane},
	}
	if err := w.queue.RegisterWorker(w.t.Context(), worker); err != nil {
		w.t.Fatal(err)
	}
	return worker
}

// claim takes the next due merge job; nil when there is none.
func (w *world) claim() *queue.Lease {
	w.t.Helper()
	leases, err := w.queue.Claim(w.t.Context(), queue.ClaimRequest{
		Worker: w.worker(), Lane: Lane, Kinds: []string{Kind}, Repos: []string{repoName}, Limit: 1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(leases) == 0 {
		return nil
	}
	return leases[0]
}

func (w *world) mustClaim() *queue.Lease {
	w.t.Helper()
	l := w.claim()
	if l == nil {
		w.t.Fatal("no merge job is due")
	}
	return l
}

// run does what a worker does with a handler and its answer, and returns that answer.
func (w *world) run(h *Handler, l *queue.Lease) error {
	ctx, cancel := l.Context(w.t.Context())
	defer cancel(nil)
	err := h.Run(ctx, l)
	if l.Ended() {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	ending := l.Tx(ctx, func(tx pgx.Tx) error {
		var snooze *queue.SnoozeError
		switch {
		case err == nil:
			return l.CompleteTx(ctx, tx)
		case errors.As(err, &snooze):
			return l.ReleaseTx(ctx, tx, queue.Release{After: snooze.After, WaitingFor: snooze.WaitingFor})
		case errors.Is(err, queue.ErrStopping):
			return l.ReleaseTx(ctx, tx, queue.Release{})
		case errors.Is(err, queue.ErrCancelRequested):
			return l.CancelledTx(ctx, tx)
		}
		_, retry := l.RetryTx(ctx, tx, queue.Failure{Code: "failed", Err: err})
		return retry
	})
	if ending != nil && !errors.Is(ending, queue.ErrLeaseLost) { // a stale holder has nothing to end
		w.t.Errorf("end the job after %v: %v", err, ending)
	}
	return err
}

// drain runs due jobs one after the other until none is due.
func (w *world) drain(h *Handler) {
	w.t.Helper()
	for l := w.claim(); l != nil; l = w.claim() {
		if err := w.run(h, l); err != nil {
			w.t.Fatalf("merge job: %v", err)
		}
	}
}

// crash runs the handler in a goroutine that ends at the point, as if its process had died, and puts its job back
// into the queue as a reaper does. It reports whether the point was reached.
func (w *world) crash(l *queue.Lease, stop point) bool {
	w.t.Helper()
	return w.crashWith(l, stop, func() {})
}

// crashWith is crash after something else that happens there.
func (w *world) crashWith(l *queue.Lease, stop point, do func()) bool {
	w.t.Helper()
	reached := false
	h := w.handler(func(at point) {
		if at == stop && !reached {
			reached = true
			do()
			runtime.Goexit()
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.run(h, l); err != nil {
			w.t.Errorf("merge job that was to crash at %s: %v", stop, err)
		}
	}()
	<-done
	if reached {
		w.reap(l)
	}
	return reached
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

// opening is what a handler opens an attempt with.
func opening(t Task, d Definition) attempt.Open {
	return attempt.Open{TaskID: t.ID, Repo: d.Repo.Name, Target: d.Target, Branch: t.Branch, Method: d.Method}
}
