package merge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/queue"
	"orch/internal/testgit"
)

// TestOracle lands random branches by several gates that are frozen and killed at random points, while people push to main and
// to the branches and cancel tasks. Then git itself is asked what came of it: see oracle_check_test.go.
//
// ORCH_ORACLE_RUNS says how often. A run is named by the seed and its number, and done again by
//
//	ORCH_ORACLE_SEED=seed go test -run TestOracle/number ./internal/merge
//
// which makes the same branches and the same events; only who comes first is up to the machine.
func TestOracle(t *testing.T) {
	t.Parallel()
	seed, runs := number(t, "ORCH_ORACLE_SEED", rand.IntN(1_000_000)), number(t, "ORCH_ORACLE_RUNS", 4)
	t.Logf("ORCH_ORACLE_SEED=%d", seed)
	for run := range runs {
		t.Run(strconv.Itoa(run), func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, rand.New(rand.NewPCG(uint64(seed), uint64(run))), run)
			o.play()
			if !t.Failed() {
				o.check()
			}
			if t.Failed() {
				t.Logf("ORCH_ORACLE_SEED=%d go test -run 'TestOracle/%d$' ./internal/merge\n%s", seed, run, o.story())
			}
		})
	}
}

// number is a number from the environment.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text, ok := os.LookupEnv(variable)
	if !ok {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s: %q isn't a number", variable, text)
	}
	return n
}

// oracle is one run.
type oracle struct {
	*world

	method   git.Method
	batch    int
	start    string // main, before anything landed
	branches []*branch

	mu      sync.Mutex
	cond    *sync.Cond
	dice    *rand.Rand
	events  []func() // what people do, in this order, at random moments
	active  int      // gates that look for work, or do some
	changes int      // grows when there may be work again
	frozen  []*frozen
	over    bool
	told    []string        // what happened
	people  map[string]bool // commits that people moved main to
	nudges  int             // how often nobody had anything to do although work was left
	freezes int             // how many more holders may be frozen
	crashes int             // and killed
}

// frozen is a holder that lost its leases and doesn't know it yet.
type frozen struct {
	what string
	wake chan struct{}
}

const gates = 4

// play lets the gates land everything.
func (o *oracle) play() {
	var group sync.WaitGroup
	for range gates {
		group.Go(o.serve)
	}
	group.Wait()
	if !o.over {
		o.t.Error("the gates ended early")
	}
	o.t.Logf("%s in groups of %d: %d branches, %d events, %d times nobody was woken",
		o.method, o.batch, len(o.branches), len(o.told), o.nudges)
}

// serve is one gate: it claims and lands until nothing is left.
func (o *oracle) serve() {
	ended := false
	defer func() {
		if !ended { // by a failure: nobody is to wait for this one
			o.mu.Lock()
			defer o.mu.Unlock()
			o.over = true
			for len(o.frozen) > 0 {
				o.wake()
			}
			o.cond.Broadcast()
		}
	}()
	for {
		o.mu.Lock()
		if o.over {
			ended = true
			o.mu.Unlock()
			return
		}
		o.active++
		seen := o.changes
		o.mu.Unlock()
		l := o.claim()
		if l != nil {
			o.ride(l)
		}
		o.mu.Lock()
		o.active--
		switch {
		case l != nil:
			o.change()
		case o.active == 0 && o.changes == seen:
			o.stir()
		}
		for l == nil && o.changes == seen && !o.over {
			o.cond.Wait()
		}
		o.mu.Unlock()
	}
}

func (o *oracle) change() {
	o.changes++
	o.cond.Broadcast()
}

// stir is called when no gate has anything to do: somebody else does something, or it is over.
func (o *oracle) stir() {
	switch {
	case len(o.events) > 0 && (len(o.frozen) == 0 || o.dice.IntN(2) == 0):
		o.happen()
	case len(o.frozen) > 0:
		o.wake()
		return // it is at work now
	default:
		var left int
		o.row(&left, `select count(*) from jobs where kind = 'merge' and state in ('queued', 'running')`)
		if o.over = left == 0; !o.over {
			o.nudges++
			o.tell("%d jobs are left and nobody was woken: %s", left, o.text(`select string_agg(phase || ' ' || coalesce(task_id, 0), ', ')
				from jobs where kind = 'merge' and state = 'queued'`))
			o.exec(`update jobs set run_at = now() where kind = 'merge' and state = 'queued'`)
		}
	}
	o.change()
}

// happen lets people do the next thing; the caller holds the lock, which is free meanwhile.
func (o *oracle) happen() {
	event := o.events[0]
	o.events = o.events[1:]
	o.active++
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.active--
		o.change()
	}()
	event()
}

// wake lets the holder go on that has been frozen longest.
func (o *oracle) wake() {
	f := o.frozen[0]
	o.frozen = o.frozen[1:]
	o.active++
	o.tell("%s wakes up", f.what)
	close(f.wake)
}

// ride lands one job, until it ends or its holder is frozen.
func (o *oracle) ride(l *queue.Lease) {
	detached, ended := make(chan struct{}), make(chan struct{})
	var stale bool
	at := func(point string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.change() // somebody may have been woken
		if stale {
			return
		}
		what := fmt.Sprintf("%s at %s", o.key(*l.Job().TaskID), point)
		switch dice := o.dice.IntN(100); {
		case dice < 20 && len(o.events) > 0:
			o.happen()
		case dice < 25 && len(o.frozen) > 0:
			o.wake()
		case dice < 30 && o.freezes > 0:
			o.freezes--
			f := &frozen{what: what, wake: make(chan struct{})}
			o.frozen = append(o.frozen, f)
			o.tell("%s freezes", what)
			stale = true
			o.reap(l)
			close(detached)
			o.mu.Unlock()
			<-f.wake
			o.mu.Lock()
		case dice < 34 && o.crashes > 0:
			o.crashes--
			o.tell("%s crashes", what)
			stale = true
			o.reap(l)
			runtime.Goexit()
		}
	}
	go func() {
		defer close(ended)
		defer func() {
			select {
			case <-detached:
				o.mu.Lock()
				defer o.mu.Unlock()
				o.active--
				o.change()
			default:
			}
		}()
		err := o.run(o.gate(at), l)
		var snooze *queue.SnoozeError
		switch {
		case err == nil, errors.As(err, &snooze), errors.Is(err, queue.ErrCancelRequested):
		case errors.Is(err, queue.ErrLeaseLost) && stale:
		default:
			o.t.Errorf("merge job of %s: %v", o.key(*l.Job().TaskID), err)
		}
	}()
	select {
	case <-ended:
	case <-detached:
	}
}

// gate is a handler that tests by the oracle's predicate.
func (o *oracle) gate(at func(point string)) *Handler {
	cfg := o.config()
	cfg.Tester = o
	cfg.At = at
	h, err := NewHandler(cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	return h
}

// Test implements Tester: it judges the names of the commit's files, and keeps what it found.
func (o *oracle) Test(ctx context.Context, l *queue.Lease, r TestRequest) (TestResult, error) {
	why, err := red(testgit.Open(o.t, o.mirror), r.Commit) //nolint:contextcheck // the commands of tests aren't stopped
	if err != nil {
		return TestResult{}, err
	}
	outcome := "pass"
	if why != "" {
		outcome = "fail"
	}
	result := TestResult{Green: why == "", Reason: why}
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `insert into gate_evidence (task_id, stage, round, name, definition, commit_sha, tree, outcome)
			values ($1, $2, $3, 'test', 'oracle', $4, $5, $6) returning id`,
			r.TaskID, r.Stage, r.Round, r.Commit, r.Tree, outcome).Scan(&result.EvidenceID)
	})
	return result, err
}

// Definition implements Catalog.
func (o *oracle) Definition(context.Context, Task) (Definition, error) {
	return Definition{
		Repo: forge.Repo{Name: repoName, Location: o.repo.Dir, Base: "main"}, Target: "main", Test: "oracle", Land: true,
		Method: string(o.method), Batch: o.batch,
	}, nil
}

// red says why a commit is red: it has a file that is, or both files of a pair that don't go together.
func red(repo *testgit.Repo, commit string) (string, error) {
	out, err := repo.Try("ls-tree", "-r", "--name-only", commit)
	if err != nil {
		return "", fmt.Errorf("list the files of %s: %w: %s", commit, err, out)
	}
	has := map[string]bool{}
	for name := range strings.SplitSeq(out, "\n") {
		has[name] = true
	}
	for name := range has {
		pair, one := strings.CutPrefix(name, "x-")
		if strings.HasPrefix(name, "red-") || one && has["y-"+pair] {
			return name + " is red", nil
		}
	}
	return "", nil
}

// cancelTask lets a person cancel a task; it is refused when its landing has started.
func (o *oracle) cancelTask(b *branch) {
	err := o.cancel(context.Background(), b.task)
	for db.Code(err) == db.CodeDeadlock {
		err = o.cancel(context.Background(), b.task)
	}
	if err != nil && !errors.Is(err, errTooLate) {
		o.t.Errorf("cancel %s: %v", b.key, err)
	}
	o.note("cancel of %s is answered %v", b.key, err)
}

// tell notes what happened; the caller holds the lock.
func (o *oracle) tell(format string, args ...any) {
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

func (o *oracle) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell(format, args...)
}

// story is what is known of a run that failed.
func (o *oracle) story() string {
	var s strings.Builder
	for _, b := range o.branches {
		fmt.Fprintf(&s, "%s %s %v: %s %s %s\n", b.key, b.kind, b.files, o.state(b.task), o.step(b.task), o.lastError(b.task))
	}
	s.WriteString(strings.Join(o.told, "\n"))
	log, _ := o.repo.Try("log", "--graph", "--format=%h %p %s", "--name-only", "main")
	return s.String() + "\n" + log
}
