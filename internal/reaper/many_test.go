package reaper_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/process/runtest"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/reaper"
)

// crowd is so many running jobs of a worker, without runs.
func (w *world) crowd(worker queue.Worker, n int) {
	w.t.Helper()
	w.exec(`insert into jobs (kind, lane, max_attempts, state, epoch, attempt, worker_id, root_id, host, pid, lease_expires_at, started_at)
		select 'work', 'system', 3, 'running', 1, 1, $1, $2, $3, $4, clock_timestamp() + interval '1 hour', clock_timestamp() from generate_series(1, $5::int)`,
		worker.ID, w.root, worker.Host, worker.PID, n)
}

func TestPagesOver100000RunningRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, living := w.worker(dead(t)), w.worker()
	w.crowd(gone, 1)
	w.crowd(living, 100_000)
	w.crowd(gone, 3)
	beats := 0
	w.tick(w.reaper(func(c *reaper.Config) { c.Beat = func() { beats++ } }), 1)
	w.is("released", "4", `select count(*)::text from jobs where state = 'queued'`)
	w.is("left", "100000", `select count(*)::text from jobs where state = 'running'`)
	if beats < 100 {
		t.Errorf("%d signs of life", beats)
	}
}

// single counts the jobs that are taken one by one.
type single struct {
	jobs

	mu  sync.Mutex
	ids []int64
}

func (s *single) Take(ctx context.Context, seen queue.Seen, t queue.Taking) (*queue.Job, error) {
	s.mu.Lock()
	s.ids = append(s.ids, seen.ID)
	s.mu.Unlock()
	return s.Queue.Take(ctx, seen, t)
}

// Thousands of a dead worker are given on together, and each is counted and told as if it had been alone. What needs more than
// that is for itself.
func TestJobsOfADeadWorkerAreGivenOnTogether(t *testing.T) {
	t.Parallel()
	const crowd = 2700
	w := newWorld(t)
	gone := w.worker(dead(t))
	w.crowd(gone, crowd)
	cancelled, looping, j := w.plain(gone).Job().ID, w.plain(gone).Job().ID, w.agentJob(gone)
	if _, err := w.queue.Cancel(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	w.exec(`update jobs set recoveries = 5 where id = $1`, looping)
	one := &single{jobs: jobs{w.queue, look.NewStore(w.pool)}}
	counted := 0
	r := w.reaper(func(c *reaper.Config) { c.Queue, c.Counted = one, func(n int) { counted += n } })
	if err := r.FirstTick(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	w.is("given on", strconv.Itoa(crowd), `select count(*)::text from jobs
		where state = 'queued' and kind = 'work' and attempt = 0 and recoveries = 1 and epoch = 1 and run_at <= clock_timestamp()`)
	w.jobIs(cancelled, "cancelled attempt 0 recoveries 1")
	w.jobIs(looping, "failed attempt 1 recoveries 5")
	w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
	if slices.Sort(one.ids); !slices.Equal(one.ids, []int64{cancelled, looping, j.id}) {
		t.Errorf("one by one: %v", one.ids)
	}
	w.is("counted", strconv.Itoa(crowd+2), `select total::text from counters where name = 'reaped_total'`)
	if counted != crowd+3 || len(w.reaped) != crowd+2 {
		t.Errorf("counted %d, told %d", counted, len(w.reaped))
	}
	said := w.log.of("job reaped")
	ids := map[any]bool{}
	for _, line := range said {
		if ids[line["job_id"]] = true; line["reason"] != "worker_dead" || line["host"] != w.self.Host || line["level"] != "WARN" {
			t.Fatalf("%v", line)
		}
	}
	if len(said) != crowd+2 || len(ids) != crowd+2 {
		t.Errorf("%d lines about %d jobs", len(said), len(ids))
	}
	w.is("worker gone", "true", `select (stopped_at is not null)::text from workers where id = $1`, gone.ID)
}

// What can't be told of isn't done, and no other waits for it.
func TestOneThatCannotBeToldOfKeepsNoOtherOfItsWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	w.crowd(gone, 3)
	bad := w.plain(gone).Job().ID
	r := w.reaper(func(c *reaper.Config) {
		c.OnReapTx = func(_ context.Context, _ pgx.Tx, r reaper.Reaped) error {
			if r.JobID == bad {
				return errors.New("no alert")
			}
			return nil
		}
	})
	if err := r.FirstTick(runtest.Bound(t)); err == nil {
		t.Error("it went well")
	}
	w.jobIs(bad, "running attempt 1 recoveries 0")
	w.is("given on", "3", `select count(*)::text from jobs where state = 'queued'`)
	w.is("counted", "3", `select total::text from counters where name = 'reaped_total'`)
}

// The tasks of many are asked for at once.
func TestManyAreNamedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	for range 3 {
		w.task()
		w.claim(gone)
	}
	asked := 0
	r := w.reaper(func(c *reaper.Config) {
		c.Describe = func(ctx context.Context, ids []int64) (map[int64]reaper.Subject, error) {
			asked++
			return w.describe(ctx, ids)
		}
	})
	w.tick(r, 1)
	if asked != 1 || len(w.reaped) != 3 {
		t.Fatalf("asked %d times for %d", asked, len(w.reaped))
	}
	for _, reaped := range w.reaped {
		if reaped.Task == "" || reaped.Branch == "" || reaped.Repo != "demo" || reaped.Outcome != "queued" || reaped.PID == 0 {
			t.Errorf("%+v", reaped)
		}
	}
}

func TestManyReapersReapManyOnce(t *testing.T) {
	t.Parallel()
	const crowd = 3000
	w := newWorld(t)
	w.crowd(w.worker(dead(t)), crowd)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := w.reaper().FirstTick(runtest.Bound(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.is("given on", strconv.Itoa(crowd), `select count(*)::text from jobs where state = 'queued' and recoveries = 1`)
	w.is("counted", strconv.Itoa(crowd), `select total::text from counters where name = 'reaped_total'`)
	if said := w.log.of("job reaped"); len(said) != crowd {
		t.Errorf("%d lines", len(said))
	}
}
