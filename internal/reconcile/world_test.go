package reconcile_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
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
	"orch/internal/merge"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/merge/resting"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/reconcile"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// world is a database, a repository with its mirror in a data root, tasks of it, the merge gate, and a reconciler.
type world struct {
	t      *testing.T
	pool   *pgxpool.Pool
	queue  *queue.Queue
	tasks  *task.Store
	store  *attempt.Store
	git    *gitcmd.Git
	repo   *testgit.Repo
	root   uuid.UUID
	mirror string
	forge  forge.Forge
	fresh  time.Duration // of what the reconcilers made from now on see of repositories
	log    *logs
	rec    *reconcile.Reconciler

	pipeline func(t task.Task) (flow.Pipeline, error)
}

const demo = "demo"

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, testgit.NewBare(t, map[string]string{"README": "demo\n", "shared": "one\n"}))
}

func worldOf(t *testing.T, repo *testgit.Repo) *world {
	t.Helper()
	return worldOn(t, repo, testdb.New(t))
}

func worldOn(t *testing.T, repo *testgit.Repo, pool *pgxpool.Pool) *world {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, pool: pool, git: g, repo: repo, mirror: filepath.Join(t.TempDir(), "mirror.git"),
		forge: local.New(g, local.Config{}), log: &logs{},
	}
	w.pipeline = func(task.Task) (flow.Pipeline, error) { return flow.Short("default", "coder", "true"), nil }
	w.store = attempt.NewStore(lease.NewStore(w.pool, lease.Config{}))
	w.tasks, err = task.NewStore(w.pool, task.StoreConfig{
		Catalog: w,
		StopLandingTx: func(ctx context.Context, tx pgx.Tx, id int64) (bool, error) {
			started, err := w.store.LandingStartedTx(ctx, tx, id)
			if err != nil || started {
				return false, err
			}
			return true, w.store.AbandonTx(ctx, tx, id, "cancelled")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue.New(w.pool, queue.Config{OnFailed: w.tasks.JobFailedTx})
	w.root = queuetest.Root(t, w.pool)
	w.rec = w.reconciler()
	return w
}

// reconciler makes one more.
func (w *world) reconciler() *reconcile.Reconciler { return w.reconcilerOn(w.pool) }

func (w *world) reconcilerOn(pool *pgxpool.Pool) *reconcile.Reconciler {
	return reconcile.New(reconcile.Config{
		Pool: pool, Tasks: w.tasks, Root: w.root, Logger: w.log.logger(),
		Landings: resting.New(resting.Config{
			Pool: pool, Store: w.store, Tasks: adapter{w}, Mirrors: w, Catalog: adapter{w}, Forge: w.forge, Committer: git.Committer(), Fresh: w.fresh,
		}),
	})
}

// Pipeline implements task.Catalog.
func (w *world) Pipeline(_ context.Context, t task.Task) (flow.Pipeline, error) { return w.pipeline(t) }

// Open implements build.Mirrors.
func (w *world) Open(ctx context.Context, _ forge.Repo) (*git.Mirror, error) {
	return git.OpenMirror(ctx, w.git, w.mirror)
}

// adapter is what app does between the merge gate and the tasks.
type adapter struct{ w *world }

func (a adapter) Definition(_ context.Context, t merge.Task) (merge.Definition, error) {
	return merge.Definition{
		Repo: forge.Repo{Name: t.Repo, Location: t.Location, Base: t.BaseBranch}, Target: t.BaseBranch, Test: "true", Land: t.Land, Home: true,
	}, nil
}

func (a adapter) Load(ctx context.Context, id int64) (merge.Task, error) {
	t, err := a.w.tasks.ByID(ctx, id)
	if errors.Is(err, task.ErrNotFound) {
		return merge.Task{}, merge.ErrSuperseded
	}
	return merge.Task{
		ID: t.ID, Key: t.Key, Repo: t.Repo, Location: t.Location, Title: t.Title, Branch: t.Branch, BaseBranch: t.BaseBranch,
		Stage: t.Stage, Round: t.Round, Head: t.PassedCommit, Land: t.Land, Open: !t.State.Ended(),
	}, err
}

func place(t merge.Task) task.At { return task.At{TaskID: t.ID, Stage: t.Stage, Round: t.Round} }

func (a adapter) IntentTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task) error {
	_, held, err := a.w.tasks.HoldTx(ctx, tx, place(t))
	if err == nil && !held {
		err = merge.ErrSuperseded
	}
	return err
}

func (a adapter) LandedTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, landed merge.Landed) (bool, error) {
	note := ""
	if landed.Upstream {
		note = "there already"
	}
	_, err := a.w.tasks.LandedTx(ctx, tx, place(t), task.Landing{Commit: landed.Commit, Note: note})
	return false, err
}

func (a adapter) ReturnTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t merge.Task, r merge.Return) error {
	if err := l.CompleteTx(ctx, tx); err != nil {
		return err
	}
	_, err := a.w.tasks.ReturnTx(ctx, tx, place(t), task.Return{Reason: r.Reason})
	return err
}

func (a adapter) BlockTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, code, reason string) error {
	_, err := a.w.tasks.BlockTx(ctx, tx, place(t), task.Block{Code: code, Reason: reason})
	return err
}

func (a adapter) ReadyTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, _ merge.Ready) error {
	_, err := a.w.tasks.WaitTx(ctx, tx, place(t), task.Wait{For: task.PersonLands})
	return err
}

func (a adapter) Test(context.Context, *queue.Lease, merge.TestRequest) (merge.TestResult, error) {
	return merge.TestResult{Green: true}, nil
}

// create makes a task of a repository; only demo is there.
func (w *world) create(repo string) task.Task {
	w.t.Helper()
	location := "/srv/" + repo
	if repo == demo {
		location = w.repo.Dir
	}
	t, err := w.tasks.Create(w.t.Context(), task.Add{
		Repo: repo, Location: location, Title: "T", Source: "cli", Pipeline: "default", BaseBranch: "main", Land: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// landing makes a task whose work is about to land: its branch is in the mirror, and its merge job is due.
func (w *world) landing(land bool, change func(work *testgit.Repo)) task.Task {
	w.t.Helper()
	t := w.create(demo)
	m, err := w.Open(w.t.Context(), forge.Repo{})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := m.Fetch(w.t.Context(), w.repo.Dir); err != nil {
		w.t.Fatal(err)
	}
	work := w.clone()
	change(work)
	work.Git("push", "-q", w.mirror, "HEAD:refs/heads/"+t.Branch)
	w.exec(`update tasks set stage = 'deploy', passed_commit = $2, root_id = $3, land = $4 where id = $1`, t.ID, work.Head(), w.root, land)
	w.exec(`update jobs set kind = 'merge', lane = 'merge', args = jsonb_set(args, '{stage}', '"deploy"') where task_id = $1`, t.ID)
	return w.get(t.ID)
}

func (w *world) clone() *testgit.Repo {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	w.repo.Git("clone", "-q", w.repo.Dir, dir)
	return testgit.Open(w.t, dir)
}

func (w *world) get(id int64) task.Task {
	w.t.Helper()
	t, err := w.tasks.ByID(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// job is the live one that moves a task, as "kind state"; "" when there is none.
func (w *world) job(id int64) string {
	w.t.Helper()
	return w.text(`select coalesce(string_agg(kind || ' ' || state, ', '), '') from jobs where dedupe_key = 'task:' || $1::bigint and state in ('queued', 'running')`, id)
}

// loseJob cancels a task's job by its id, as nobody should.
func (w *world) loseJob(id int64) {
	w.t.Helper()
	w.exec(`update jobs set state = 'cancelled', finished_at = now() where dedupe_key = 'task:' || $1::bigint and state = 'queued'`, id)
}

// events are the kinds of a task's events.
func (w *world) events(id int64) string {
	w.t.Helper()
	return w.text(`select string_agg(kind, ' ' order by id) from task_events where task_id = $1`, id)
}

// rested lets a stopped task have rested for so long.
func (w *world) rested(id int64, d time.Duration) {
	w.t.Helper()
	w.exec(`update tasks set updated_at = clock_timestamp() - make_interval(secs => $2) where id = $1`, id, d.Seconds())
}

func (w *world) tick() {
	w.t.Helper()
	if err := w.rec.Tick(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// repaired checks what was told of repairs so far, each as "repair task", against log, counter and the newest.
func (w *world) repaired(want string) {
	w.t.Helper()
	got := w.log.repaired()
	if list := strings.Join(got, ", "); list != want {
		w.t.Errorf("repaired %q, want %q", list, want)
	}
	total := w.text(`select coalesce((select total from counters where name = 'repaired_total'), 0)::text`)
	if total != strconv.Itoa(len(got)) {
		w.t.Errorf("repaired_total is %s after %d repairs", total, len(got))
	}
	last := w.text(`select coalesce((select data->>'repair' || ' ' || (data->>'task') from latest where name = 'last_repaired'), '')`)
	if len(got) > 0 && last != got[len(got)-1] || len(got) == 0 && last != "" {
		w.t.Errorf("the newest repair is %q", last)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) text(sql string, args ...any) (s string) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// claim takes the next due merge job; nil when there is none.
func (w *world) claim() *queue.Lease {
	w.t.Helper()
	worker := queuetest.Worker(w.root)
	if err := w.queue.RegisterWorker(w.t.Context(), worker); err != nil {
		w.t.Fatal(err)
	}
	leases, err := w.queue.Claim(w.t.Context(), queue.ClaimRequest{
		Worker: worker, Lane: task.LaneMerge, Kinds: []string{task.KindMerge}, Repos: []string{demo}, Limit: 1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(leases) == 0 {
		return nil
	}
	return leases[0]
}

// merge does the merge jobs that are due.
func (w *world) merge() {
	w.t.Helper()
	handler, err := merge.NewHandler(merge.Config{
		Store: w.store, Tasks: adapter{w}, Mirrors: w, Catalog: adapter{w}, Tester: adapter{w}, Forge: w.forge, Committer: git.Committer(),
		Owner: "test", MaxLater: 1, MaxRefused: 1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for l := w.claim(); l != nil; l = w.claim() {
		ctx, cancel := l.Context(w.t.Context())
		if err := handler.Run(ctx, l); err != nil || !l.Ended() {
			w.t.Errorf("merge job: %v, ended %v", err, l.Ended())
		}
		cancel(nil)
	}
}

// dieAt does the due merge job until a step, and has it fail for good then.
func (w *world) dieAt(point string) {
	w.t.Helper()
	l := w.claim()
	if l == nil {
		w.t.Fatal("no merge job is due")
	}
	handler, err := merge.NewHandler(merge.Config{
		Store: w.store, Tasks: adapter{w}, Mirrors: w, Catalog: adapter{w}, Tester: adapter{w}, Forge: w.forge, Committer: git.Committer(), Owner: "test",
		At: func(p string) {
			if p == point {
				runtime.Goexit()
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := l.Context(w.t.Context())
		defer cancel(nil)
		w.t.Errorf("the merge job came to its end: %v", handler.Run(ctx, l))
	}()
	<-done
	err = l.Tx(w.t.Context(), func(tx pgx.Tx) error {
		return l.FailTx(w.t.Context(), tx, queue.Failure{Code: queue.CodeCrashLoop, Message: "again and again"})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
