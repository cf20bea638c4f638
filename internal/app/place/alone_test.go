package place

import (
	"context"
	"errors"
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

// grantedTo is a lease of the one job, granted to a new worker of the site's root.
func (s *site) grantedTo(t *testing.T, q *queue.Queue) *queue.Lease {
	t.Helper()
	w := queuetest.Worker(s.root.ID())
	if err := q.RegisterWorker(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	leases, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: "agents", Kinds: []string{"stage"}, Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(leases), err)
	}
	return leases[0]
}

func TestAlone_KeepsOthersFromATasksFilesAndRefusesALostLease(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	s := newSiteOn(t, pool)
	q := queue.New(pool, queue.Config{})
	// Not tied to a task: Alone is told which.
	if _, err := q.Enqueue(t.Context(), queue.Insert{Kind: "stage", Lane: "agents"}); err != nil {
		t.Fatal(err)
	}
	const id = 1
	stale := s.grantedTo(t, q)
	busy := func(l *queue.Lease, id int64) bool {
		t.Helper()
		err := s.Alone(t.Context(), l, id, func() error { return nil })
		rest, ok := errors.AsType[*queue.SnoozeError](err)
		if err != nil && (!ok || rest.WaitingFor != "workspace_busy") {
			t.Fatal(err)
		}
		return ok
	}
	// A process is stopped in the middle of its work, and loses the job to another one.
	begun := false
	err := s.Alone(t.Context(), stale, id, func() error {
		begun = true
		const release = `update jobs set state = 'queued', worker_id = null, lease_expires_at = null`
		if _, err := pool.Exec(t.Context(), release); err != nil {
			return err
		}
		next := s.grantedTo(t, q)
		if !busy(next, id) {
			t.Error("two are at the files of one task")
		}
		if busy(next, id+1) {
			t.Error("another task's files are taken too")
		}
		return nil
	})
	if err != nil || !begun {
		t.Fatalf("begun %v, %v", begun, err)
	}
	err = s.Alone(t.Context(), stale, id, func() error {
		t.Error("a process whose job another one has changes the task's files")
		return nil
	})
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the lost lease: %v", err)
	}
}

func TestRetiring_IsDoneAlone(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	s := newSiteOn(t, pool)
	q := queue.New(pool, queue.Config{})
	if _, err := q.Enqueue(t.Context(), queue.Insert{Kind: "stage", Lane: "agents", TaskID: 7}); err != nil {
		t.Fatal(err)
	}
	lease := s.grantedTo(t, q)
	ran := false
	handler := s.Retiring(worker.HandlerFunc(func(ctx context.Context, l *queue.Lease) error {
		ran = true
		err := s.Alone(ctx, l, 7, func() error { return nil })
		if _, rests := errors.AsType[*queue.SnoozeError](err); !rests {
			t.Errorf("others come in: %v", err)
		}
		return nil
	}))
	if err := handler.Run(t.Context(), lease); err != nil || !ran {
		t.Errorf("ran %v, %v", ran, err)
	}
}
