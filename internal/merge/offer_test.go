package merge

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// elsewhere is the same world as another data root sees it, with a mirror of its own.
func (w *world) elsewhere() *world {
	w.t.Helper()
	other := *w
	other.root = uuid.New()
	other.mirror = filepath.Join(w.t.TempDir(), "mirror.git")
	w.exec(`insert into roots (id, host, path) values ($1, 'there', '/root')`, other.root)
	return &other
}

// tied makes a task whose branch is in this root's mirror only, as its job is.
func (w *world) tied(files map[string]string) int64 {
	w.t.Helper()
	task := w.add(files)
	w.tasks.head[task] = w.branch(task)
	w.tasks.root = w.root
	w.exec(`update jobs set pinned_root = $2, repo = $3 where task_id = $1`, task, w.root, repoName)
	return task
}

// Whatever step the host died at, another one lands what was offered, once.
func TestOfferedMergeJobIsClaimedByAnotherRoot(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{
		pointEntered, pointPreparing, pointClaimed, pointReplayed, pointTesting, pointTested, pointReady, pointIntended, pointLanding,
		pointMoved, pointLanded, pointRefreshed,
	} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.tied(map[string]string{"a": "a"})
			l := w.mustClaim()
			if !w.crash(l, stop) {
				t.Fatalf("%s was never reached", stop)
			}
			there := w.elsewhere()
			l = there.mustClaim()
			if err := there.run(there.handler(nil), l); err != nil {
				t.Fatal(err)
			}
			there.landedOnce(task, "a")
			if got := w.repo.Git("for-each-ref", "refs/orch/head", "refs/orch/land"); got != "" {
				t.Errorf("left in the repository: %s", got)
			}
		})
	}
}

// Before the offer is recorded, and where only its own root can know the task, a job stays with its root.
func TestWhatIsNotOfferedStaysWithItsRoot(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *world, task int64) (stop point){
		"not yet recorded":               func(*world, int64) point { return pointOffered },
		"a person lands":                 func(w *world, _ int64) point { w.land = false; return pointTesting },
		"a repository of this root only": func(w *world, _ int64) point { w.home = true; return pointTesting },
		"the head is not known": func(w *world, task int64) point {
			delete(w.tasks.head, task)
			return pointTesting
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.tied(map[string]string{"a": "a"})
			if !w.crash(w.mustClaim(), arrange(w, task)) {
				t.Fatal("not reached")
			}
			if l := w.elsewhere().claim(); l != nil {
				t.Error("another root claimed it")
			}
		})
	}
}

// A run of the test ties the job to its root until it is over.
func TestRunOfTheTestKeepsTheJobInItsRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.tied(map[string]string{"a": "a"})
	l := w.mustClaim()
	run := uuid.New()
	if !w.crashWith(l, pointTesting, func() {
		err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.PinTx(t.Context(), tx, run) })
		if err != nil {
			t.Error(err)
		}
	}) {
		t.Fatal("never tested")
	}
	there := w.elsewhere()
	if l := there.claim(); l != nil {
		t.Fatal("another root claimed a job whose run may live")
	}
	l = w.mustClaim()
	err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.UnpinTx(t.Context(), tx) }) // as the gate does when the run is over
	if err != nil {
		t.Fatal(err)
	}
	if !w.crash(l, pointReady) {
		t.Fatal("never ready")
	}
	if err := there.run(there.handler(nil), there.mustClaim()); err != nil {
		t.Fatal(err)
	}
	there.landedOnce(task, "a")
	if got := len(w.tester.commits()); got != 1 {
		t.Errorf("tested %d times", got)
	}
}

// An offer that somebody took away isn't landed from; it is made again where the branch is.
func TestOfferThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.tied(map[string]string{"a": "a"})
	if !w.crash(w.mustClaim(), pointReady) {
		t.Fatal("never ready")
	}
	w.repo.Git("update-ref", "-d", "refs/orch/head/"+w.key(task))
	there := w.elsewhere()
	if err := there.run(there.handler(nil), there.mustClaim()); err != nil {
		t.Fatal(err)
	}
	if got := w.lastError(task); got != problem.NoBranch {
		t.Errorf("the other root has %q", got)
	}
	if got := w.text(`select tries from merge_attempts where task_id = $1`, task); got != "0" {
		t.Errorf("counted %s problems", got)
	}
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	if l := there.claim(); l != nil {
		t.Fatal("the other root claimed it once more")
	}
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
}

// A database that was restored from an older copy knows lower epochs than the repository: the lease is lifted above.
func TestClaimOfALostDatabaseIsPassed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	first := w.add(map[string]string{"a": "a"})
	w.exec(`insert into merge_leases (repo, target, epoch) values ($1, 'main', 1000)`, repoName)
	w.drain(w.handler(nil))
	w.landedOnce(first, "a")
	w.exec(`update merge_leases set epoch = 5`)
	second := w.add(map[string]string{"b": "b"})
	var snooze *queue.SnoozeError
	if err := w.run(w.handler(nil), w.mustClaim()); !errors.As(err, &snooze) {
		t.Errorf("ended with %v", err)
	}
	w.exec(`update jobs set run_at = now() where task_id = $1`, second)
	w.drain(w.handler(nil))
	w.landedOnce(second, "b")
	if got := w.text(`select later + moved + refused from merge_attempts where task_id = $1`, second); got != "0" {
		t.Errorf("counted %s problems", got)
	}
}

func TestMethodsOfLanding(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]struct {
		parents string // of what lands
		subject string
		commits string // on main since
	}{
		"fast-forward": {"1", "work", "2"},
		"rebase":       {"1", "work", "2"},
		"merge":        {"2", "Merge demo-1: a task", "3"},
		"squash":       {"1", "a task (demo-1)", "2"},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			cfg := w.config()
			cfg.Catalog = withMethod{w, method}
			h, err := NewHandler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			before := w.main()
			task := w.add(map[string]string{"a": "a"})
			w.push(map[string]string{"theirs": "t"})
			w.drain(h)
			if got := w.state(task); got != "done" {
				t.Fatalf("task is %s, %s", got, w.lastError(task))
			}
			if got := w.repo.Git("log", "-1", "--format=%s", "main"); got != want.subject {
				t.Errorf("subject is %q", got)
			}
			if got := w.repo.Git("rev-list", "--count", before+"..main"); got != want.commits {
				t.Errorf("%s commits landed", got)
			}
			if got := w.repo.Git("show", "main:a"); got != "a" {
				t.Errorf("a is %q", got)
			}
			if tested := w.tester.commits(); len(tested) != 1 || tested[0] != w.main() {
				t.Errorf("tested %v, landed %s", tested, w.main())
			}
			w.clean()
		})
	}
}
