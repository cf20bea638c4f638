package reaper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/agent"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/queuetest"
	"orch/internal/reaper"
	"orch/internal/testdb"
)

func TestRunIsReadyAfterTheFirstTickAndTicksUntilItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, late := w.plain(w.worker(dead(t))).Job().ID, w.plain(w.worker()).Job().ID
	w.expire(late)
	holding, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := w.reaper(func(c *reaper.Config) {
		c.Interval = time.Millisecond
		c.Hosts = func(context.Context) error { once.Do(func() { close(holding); <-let }); return nil }
	})
	ctx, stop := context.WithCancelCause(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- r.Run(ctx, func() { close(ready) }) }()
	<-ready
	w.jobIs(gone, "queued attempt 0 recoveries 1")
	<-holding // what takes long comes after
	close(let)
	runtest.Eventually(t, "the second tick", func() bool {
		job, err := w.queue.Get(t.Context(), late)
		return err == nil && job.State == queue.StateQueued
	})
	stop(nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// faulty is a queue, and runs, that panic or fail with some.
type faulty struct {
	jobs
	*agent.Runs

	job int64
	run uuid.UUID
}

func (f faulty) Take(ctx context.Context, s queue.Seen, t queue.Taking) (*queue.Job, error) {
	if s.ID == f.job {
		panic("bad row")
	}
	return f.Queue.Take(ctx, s, t)
}

func (f faulty) TakeMany(
	ctx context.Context, seen []queue.Seen, within func(context.Context, pgx.Tx, []queue.Seen) error,
) (taken, left []queue.Seen, err error) {
	if slices.ContainsFunc(seen, func(s queue.Seen) bool { return s.ID == f.job }) {
		panic("bad row")
	}
	return f.Queue.TakeMany(ctx, seen, within)
}

func (f faulty) Seem(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]agent.Sight, error) {
	if slices.Contains(ids, f.run) {
		return nil, errors.New("bad directory")
	}
	return f.Runs.Seem(ctx, ids)
}

func TestOneBadRowStarvesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, living := w.worker(dead(t)), w.worker()
	bad := w.plain(gone).Job().ID
	unseen, deadRun := w.agentJob(living), w.agentJob(living)
	deadRun.killShim()
	good := w.plain(gone).Job().ID
	locked, unlock := w.plain(gone).Job().ID, w.lock
	hosts := 0
	r := w.reaper(func(c *reaper.Config) {
		f := faulty{jobs: jobs{w.queue, look.NewStore(w.pool)}, Runs: w.runs, job: bad, run: unseen.run}
		c.Queue, c.Runs = f, f
		c.Recover = func(context.Context) error { panic("bad run directory") }
		c.Hosts = func(context.Context) error { hosts++; return nil }
	})
	let := unlock(locked)
	for range 3 {
		if err := r.Tick(runtest.Bound(t)); err == nil {
			t.Error("nothing was bad")
		}
	}
	let()
	w.jobIs(bad, "running attempt 1 recoveries 0")
	w.jobIs(unseen.id, "running attempt 1 recoveries 0 pinned")
	w.jobIs(locked, "running attempt 1 recoveries 0")
	w.jobIs(good, "queued attempt 0 recoveries 1")
	w.jobIs(deadRun.id, "queued attempt 1 recoveries 0")
	if hosts != 3 {
		t.Errorf("hosts were looked at %d times", hosts)
	}
	if s := r.Snapshot(); s.LastError != "panic" {
		t.Errorf("%+v", s)
	}
	if said := w.log.of("part of the reaper's tick not done, tried again"); len(said) != 2 { // the jobs, the runs; once
		t.Errorf("log: %v", said)
	}
}

// lock holds a job's row.
func (w *world) lock(id int64) (unlock func()) {
	w.t.Helper()
	tx, err := w.pool.Begin(w.t.Context())
	if err == nil {
		_, err = tx.Exec(w.t.Context(), `select from jobs where id = $1 for update`, id)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(w.t.Context())) }
}

func TestTwoReapersReapOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, living := w.worker(dead(t)), w.worker()
	var released []int64
	for range 10 {
		released = append(released, w.plain(gone).Job().ID)
	}
	j := w.agentJob(living)
	j.killShim()
	var all []*reaper.Reaper
	for range 5 {
		all = append(all, w.reaper())
	}
	for well := 0; well < 3; well++ {
		var wg sync.WaitGroup
		var locked atomic.Bool
		for _, r := range all {
			wg.Go(func() {
				switch err := errors.Join(r.FirstTick(runtest.Bound(t)), r.Tick(runtest.Bound(t))); {
				case db.Code(err) == db.CodeLock: // whoever was first is slow, and is waited for by the next tick
					locked.Store(true)
				case err != nil:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if locked.Load() {
			well = -1
		}
	}
	for _, id := range released {
		w.jobIs(id, "queued attempt 0 recoveries 1")
	}
	w.jobIs(j.id, "queued attempt 1 recoveries 0")
	w.is("counted", "11", `select total::text from counters where name = 'reaped_total'`)
	if said := w.log.of("job reaped"); len(said) != 11 {
		t.Errorf("%d lines", len(said))
	}
}

func TestMassDeathIsAlertedOnceAndReapsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *agent.Config) { c.LookEvery = time.Hour }) // its looks are told apart by the clock
	living := w.worker()
	var jobs []*agentJob
	for range 6 {
		jobs = append(jobs, w.agentJob(living))
	}
	for _, j := range jobs {
		j.killShim()
	}
	var told []string
	r := w.reaper(func(c *reaper.Config) {
		c.OnMassDeath = func(_ context.Context, dead, all int) { told = append(told, fmt.Sprint(dead, " of ", all)) }
	})
	w.tick(r, 10)
	for _, j := range jobs {
		w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
		j.agentIs(process.Alive)
	}
	if len(told) != 1 || told[0] != "6 of 6" {
		t.Errorf("told: %v", told)
	}
	if s := r.Snapshot(); !s.MassDeath || s.Suspects != 6 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	w.reapedAre()
}

// Each pass decides about one run then, so that a real mass death is cleared away too.
func TestRealMassDeathIsClearedAwayRunByRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	living := w.worker()
	var jobs []*agentJob
	for range 5 {
		jobs = append(jobs, w.agentJob(living))
	}
	for _, j := range jobs {
		j.killShim()
	}
	w.tick(w.reaper(), 20)
	for _, j := range jobs {
		w.jobIs(j.id, "queued attempt 1 recoveries 0")
		j.agentIs(process.Dead)
	}
}

func TestDatabaseThatIsAwayIsAnOutcomeAndBeginsTheCountAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.plain(w.worker()).Job().ID
	w.expire(id)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(w.pool))
	away := through(queuetest.Pool(t, proxy.Config()))
	r := w.reaper(func(c *reaper.Config) { c.Queue = away })
	w.tick(r, 1)
	proxy.Set(queuetest.Refuse, "")
	for range 3 {
		if err := r.Tick(runtest.Bound(t)); err == nil {
			t.Fatal("the tick went well")
		}
	}
	if s := r.Snapshot(); s.LastError != "database_unreachable" || s.Suspects != 0 {
		t.Errorf("%+v", s)
	}
	if said := w.log.of("part of the reaper's tick not done, tried again"); len(said) != 2 { // jobs and workers, once each
		t.Errorf("log: %v", said)
	}
	proxy.Set(queuetest.Pass, "")
	w.tick(r, 1)
	w.jobIs(id, "running attempt 1 recoveries 0")
	w.tick(r, 1)
	w.jobIs(id, "queued attempt 0 recoveries 1")
	if s := r.Snapshot(); s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

// A task that can't be named is reaped all the same.
func TestFailedDescriptionKeepsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.killShim()
	w.tick(w.reaper(func(c *reaper.Config) {
		c.Describe = func(context.Context, []int64) (map[int64]reaper.Subject, error) { return nil, pgx.ErrNoRows }
	}), 2)
	w.jobIs(j.id, "queued attempt 1 recoveries 0")
}

// What is locked is waited for, job by job: a page of them takes minutes.
func TestEachJobThatIsLookedAtIsASignOfLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	living := w.worker()
	for range 50 {
		w.expire(w.plain(living).Job().ID)
	}
	beats := 0
	w.tick(w.reaper(func(c *reaper.Config) { c.Beat = func() { beats++ } }), 2)
	w.is("released", "50", `select count(*)::text from jobs where state = 'queued'`)
	if beats < 100 {
		t.Errorf("%d signs of life", beats)
	}
}

// A container that was started again has another pid namespace, from which its last one can't be seen. Whoever works in the data
// root holds its lock.
func TestWorkerThatCannotBeSeenIsDeadOnceNobodyElseIsInItsRoot(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"switched on": false, "switched off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			last := func(worker *queue.Worker) { worker.PIDNamespace = "pid:[1]@1" }
			own := w.plain(w.worker(last)).Job().ID
			others := w.plain(w.worker(last, func(worker *queue.Worker) { worker.RootID = w.otherRoot() })).Job().ID
			self := w.plain(w.worker()).Job().ID
			deserted := false
			r := w.reaper(func(c *reaper.Config) { c.Off, c.Deserted = off, func() bool { return deserted } })
			for range 3 {
				if err := r.FirstTick(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.jobIs(own, "running attempt 1 recoveries 0")
			deserted = true
			if err := r.FirstTick(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.jobIs(own, "queued attempt 0 recoveries 1")
			w.jobIs(others, "running attempt 1 recoveries 0")
			w.jobIs(self, "running attempt 1 recoveries 0")
		})
	}
}
