package look_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*queuetest.Bench
	store *look.Store
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := queuetest.NewBench(t, testdb.New(t))
	return &bench{Bench: b, store: look.NewStore(b.Pool)}
}

func TestRunningJobsAreSeenByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(`insert into jobs (kind, lane, max_attempts, run_at) values ('work', 'lane', 3, now() + interval '1 hour')`)
	plain, expired, left, unknown := b.Running(queue.Insert{}), b.Running(queue.Insert{}), b.Running(queue.Insert{}), b.Running(queue.Insert{})
	between, living := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	stopped := queuetest.Worker(b.W.RootID)
	b.Register(stopped)
	b.Exec(`update workers set stopped_at = now() where id = $1`, stopped.ID)
	b.Exec(`update jobs set worker_id = $2 where id = $1`, left.Job().ID, stopped.ID)
	b.Exec(`update jobs set worker_id = gen_random_uuid() where id = $1`, unknown.Job().ID)
	b.Exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second' where id = $1`, expired.Job().ID)
	over := queuetest.Run(t, b.Pool, between, "finished")
	queuetest.Run(t, b.Pool, living, "running")
	b.Exec(`update jobs set started_at = clock_timestamp() - interval '2 hours'`)
	b.Exec(`update runs set finished_at = clock_timestamp() - interval '1 hour' where id = $1`, over)

	got := map[int64]string{}
	page, err := b.store.RunningPage(t.Context(), 0, 100)
	b.No(err)
	for _, s := range page {
		got[s.ID] = fmt.Sprintf("known %v stopped %v expired %v over %v for %.0fh", s.Worker.ID == *s.WorkerID, s.WorkerStopped, s.Expired, s.RunFinished, s.Elapsed.Hours())
	}
	for l, want := range map[*queue.Lease]string{
		plain:   "known true stopped false expired false over false for 2h",
		expired: "known true stopped false expired true over false for 2h",
		left:    "known true stopped true expired false over false for 2h",
		unknown: "known false stopped false expired false over false for 2h",
		between: "known true stopped false expired false over true for 1h",
		living:  "known true stopped false expired false over false for 2h",
	} {
		queuetest.Equal(t, "seen", got[l.Job().ID], want)
	}
	queuetest.Equal(t, "only running ones", len(page), 6)
	held, err := b.store.HeldBy(t.Context(), stopped.ID)
	b.No(err)
	queuetest.Equal(t, "held by the one that left", len(held) == 1 && held[0].ID == left.Job().ID && held[0].Worker.BootID == "boot", true)
}

func TestPagesGoOverAllRunningJobsWhileSomeEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(`insert into jobs (kind, lane, max_attempts, state, worker_id, epoch, lease_expires_at, started_at, attempt, finished_at)
		select 'work', 'lane', 3, (case when n % 10 = 0 then 'failed' else 'running' end)::job_state, case when n % 10 > 0 then $1::uuid end, 1,
			case when n % 10 > 0 then now() + interval '1 hour' end, now(), 1, case when n % 10 = 0 then now() end
		from generate_series(1, 11111) n`, b.W.ID)
	after, total, pages := int64(0), 0, 0
	for {
		page, err := b.store.RunningPage(t.Context(), after, 100)
		b.No(err)
		for _, s := range page {
			if s.ID <= after || s.State != queue.StateRunning || s.Worker.ID != b.W.ID {
				t.Fatalf("after %d: %+v", after, s)
			}
			after = s.ID
		}
		total, pages = total+len(page), pages+1
		if len(page) < 100 {
			break
		}
		// What ends meanwhile is missed by no later page, nor does it hide any.
		b.Exec(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null where id = $1`, after)
	}
	queuetest.Equal(t, "seen", total, 10_000)
	queuetest.Equal(t, "pages", pages, 101)
}

func TestWorkersOfABoot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	add := func(change func(*queue.Worker)) queue.Worker {
		w := queuetest.Worker(b.W.RootID)
		change(&w)
		b.No(b.Q.RegisterWorker(t.Context(), w))
		return w
	}
	other := queuetest.Root(t, b.Pool)
	here := add(func(w *queue.Worker) { w.RootID = other })
	add(func(w *queue.Worker) { w.BootID = "another" })
	add(func(w *queue.Worker) { w.PIDNamespace = "another" })
	stopped, holding := add(func(*queue.Worker) {}), add(func(*queue.Worker) {})
	b.Exec(`update workers set stopped_at = now() where id in ($1, $2)`, stopped.ID, holding.ID)
	b.Enqueue(queue.Insert{})
	l := b.One(holding)
	names := func() map[uuid.UUID]bool {
		workers, err := b.store.RunningOfBoot(t.Context(), "boot", "ns")
		b.No(err)
		got := map[uuid.UUID]bool{}
		for _, w := range workers {
			got[w.ID] = true
		}
		return got
	}
	got := names()
	queuetest.Equal(t, "of any root", len(got) == 3 && got[b.W.ID] && got[here.ID] && got[holding.ID], true)

	// One that holds something isn't gone yet.
	b.Exec(`update workers set stopped_at = null where id = $1`, holding.ID)
	b.No(b.store.NoteGone(t.Context(), holding.ID))
	held, err := b.store.HeldBy(t.Context(), holding.ID)
	b.No(err)
	queuetest.Equal(t, "holds a job", len(held) == 1 && held[0].ID == l.Job().ID && !held[0].WorkerStopped, true)
	_, err = b.Q.Take(t.Context(), held[0], queue.Taking{})
	b.No(err)
	b.No(b.store.NoteGone(t.Context(), holding.ID))
	b.No(b.store.NoteGone(t.Context(), holding.ID))
	queuetest.Equal(t, "gone", names()[holding.ID], false)
}
