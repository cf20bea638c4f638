package merge

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/testdb"
)

// occupied starts a landing that stays in its test until release is called, and lets others queue behind it.
func (w *world) occupied() (holder int64, release func()) {
	w.t.Helper()
	holder = w.add(map[string]string{"first": "first"})
	l := w.mustClaim()
	testing, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	once := sync.Once{}
	h := w.handler(func(at point) {
		if at == pointTesting {
			once.Do(func() { close(testing) })
			<-end
		}
	})
	go func() { done <- w.run(h, l) }()
	<-testing
	return holder, func() {
		w.t.Helper()
		close(end)
		if err := <-done; err != nil {
			w.t.Errorf("holder: %v", err)
		}
	}
}

func TestLineIsFair(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	holder, release := w.occupied()
	second := w.add(map[string]string{"b": "b"})
	third := w.add(map[string]string{"c": "c"})
	w.drain(w.handler(nil)) // both look, and snooze
	for _, task := range []int64{second, third} {
		if due := w.dueIn(task); due < 5*time.Second {
			t.Errorf("a waiter is due in %s", due)
		}
		if got := w.text(`select phase from jobs where task_id = $1`, task); got != WaitingForLease {
			t.Errorf("a waiter waits for %q", got)
		}
	}
	w.positions(holder, second, third)
	if w.dueIn(second) >= w.dueIn(third) {
		t.Error("the waiter further back looks again sooner")
	}

	release()
	if due := w.dueIn(second); due > 0 {
		t.Errorf("the next wasn't woken: due in %s", due)
	}
	if due := w.dueIn(third); due < 5*time.Second {
		t.Errorf("the one after the next was woken: due in %s", due)
	}
	w.positions(second, third)
	w.exec(`update jobs set run_at = now() - interval '1 s' where task_id = $1`, third) // it comes too early
	w.drain(w.handler(nil))
	w.landedOnce(second, "b")
	w.landedOnce(third, "c")
	first := w.text(`select id from task_events where task_id = $1 and kind = 'landed'`, second)
	last := w.text(`select id from task_events where task_id = $1 and kind = 'landed'`, third)
	if len(first) > len(last) || len(first) == len(last) && first > last {
		t.Error("they landed out of order")
	}
}

// positions checks the read side of the line.
func (w *world) positions(tasks ...int64) {
	w.t.Helper()
	line, err := w.leases.Queue(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(line) != len(tasks) {
		w.t.Fatalf("merge queue is %+v, want %d", line, len(tasks))
	}
	for i, at := range line {
		if at.TaskID != tasks[i] || at.Position != i+1 || at.Task != w.key(tasks[i]) || at.Target != "main" {
			w.t.Errorf("place %d is %+v, want task %d", i+1, at, tasks[i])
		}
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	low, high := w.add(map[string]string{"b": "b"}), w.add(map[string]string{"c": "c"})
	w.exec(`update jobs set priority = 5 where task_id = $1`, high)
	w.drain(w.handler(nil))
	release()
	if w.dueIn(high) > 0 || w.dueIn(low) < time.Second {
		t.Errorf("due in %s, with low priority in %s", w.dueIn(high), w.dueIn(low))
	}
	w.drain(w.handler(nil))
	w.landedOnce(high, "c")
	w.landedOnce(low, "b")
}

// An attempt that backs off after a problem holds nobody up.
func TestBackOffLeavesTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	stuck := w.add(map[string]string{"shared": "one\nmine\nthree\n"})
	w.repo.Write(map[string]string{"shared": "a person is editing\n"})
	w.drain(w.handler(nil))
	if got := w.lastError(stuck); got != "checkout_dirty" {
		t.Fatalf("last error is %q", got)
	}
	w.repo.Git("checkout", "-q", "--", "shared")
	next := w.add(map[string]string{"b": "b"})
	w.drain(w.handler(nil))
	w.landedOnce(next, "b")
}

// The head of the line that nobody can serve doesn't stop it for longer than the time to live.
func TestUnservedHeadIsPassed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	head, next := w.add(map[string]string{"b": "b"}), w.add(map[string]string{"c": "c"})
	w.drain(w.handler(nil))
	release()
	w.exec(`update jobs set pinned_root = gen_random_uuid(), run_at = now() - interval '301 s' where task_id = $1`, head)
	w.exec(`update jobs set run_at = now() where task_id = $1`, next)
	w.drain(w.handler(nil))
	w.landedOnce(next, "c")
}

// Nobody is forgotten: many landings on one target, worked on by several workers, need no fall-back poll.
func TestManyLandNoneWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tasks := map[int64]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		tasks[w.add(map[string]string{name: name})] = name
	}
	h := w.handler(nil)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for {
				l := w.claim()
				if l == nil {
					return // another worker holds the lease and wakes the next into its own hands
				}
				if err := w.run(h, l); err != nil {
					t.Errorf("merge job: %v", err)
				}
			}
		})
	}
	group.Wait()
	for task, name := range tasks {
		w.landedOnce(task, name)
	}
}

// A release is told to the merge lane, so that the next doesn't wait for a poll.
func TestReleaseNotifies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	w.add(map[string]string{"b": "b"})
	w.drain(w.handler(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, testdb.ConnConfig(w.pool))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "listen "+queue.ChannelJobs); err != nil {
		t.Fatal(err)
	}
	release()
	told, err := conn.WaitForNotification(ctx)
	if err != nil || told.Payload != Lane {
		t.Errorf("told %+v, %v", told, err)
	}
	w.drain(w.handler(nil))
}
