package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

const (
	stressProcesses = 4
	stressTTL       = 1200 * time.Millisecond
)

// TestStressKilledStoppedAndRestartedProcessesEndEveryJobOnce disturbs worker processes and their server in every way that
// comes to mind, and lets the database itself tell whether anything was lost or done twice. ORCH_STRESS_SECONDS and
// ORCH_STRESS_JOBS make it longer.
//
//nolint:paralleltest // it takes the whole machine
func TestStressKilledStoppedAndRestartedProcessesEndEveryJobOnce(t *testing.T) {
	newStress(t, func(int) (string, time.Duration) { return "", 0 }).run()
}

// Half of the processes have a clock that is an hour off, in either direction. The database's is the only one that counts.
//
//nolint:paralleltest // it takes the whole machine
func TestStressWithClocksThatAreAnHourOffIsNoDifferent(t *testing.T) {
	off := buildWithClockOffset(t)
	newStress(t, func(n int) (string, time.Duration) {
		switch n % 4 {
		case 1:
			return off, time.Hour
		case 3:
			return off, -time.Hour
		default:
			return "", 0
		}
	}).run()
}

// stress is one such test.
type stress struct {
	*server
	program func(n int) (path string, clockOff time.Duration) // of the n-th process
	q       *queue.Queue
	roots   []uuid.UUID
	chaos   time.Duration
	jobs    int

	processes []*workerProcess
	stopped   sync.WaitGroup // processes that will be continued

	kills, stops, terms, cut, cancels, fenced int
	beatsCut                                  atomic.Int64
}

func newStress(t *testing.T, program func(n int) (string, time.Duration)) *stress {
	t.Helper()
	s := &stress{server: newServer(t), program: program}
	s.chaos = time.Duration(number(t, "ORCH_STRESS_SECONDS", 10)) * time.Second
	s.jobs = number(t, "ORCH_STRESS_JOBS", 1500)
	s.q = queue.New(s.pool, queue.Config{QueryTimeout: 5 * time.Second})
	s.roots = []uuid.UUID{queuetest.Root(t, s.pool), queuetest.Root(t, s.pool)}
	watch(t, s.pool)
	return s
}

func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text, ok := os.LookupEnv(variable)
	if !ok {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		t.Fatalf("%s: %q isn't a number", variable, text)
	}
	return n
}

func (s *stress) run() {
	s.t.Helper()
	for n := range stressProcesses {
		s.processes = append(s.processes, s.launch(n))
	}
	ctx, stop := context.WithCancelCause(s.t.Context())
	var feeder sync.WaitGroup
	feeder.Go(func() { s.feed(ctx) })
	defer feeder.Wait()
	defer stop(nil)

	s.disturbFor(s.chaos / 3)
	s.restart()
	s.disturbFor(s.chaos / 3)
	s.crash()
	s.disturbFor(s.chaos / 3)
	s.stopped.Wait()
	feeder.Wait()
	s.finish()
	s.report()
}

// launch starts the n-th process anew. Two of them share a root each.
func (s *stress) launch(n int) *workerProcess {
	path, off := s.program(n)
	return startProcess(s.t, path, processConfig{
		Role: "chaos", URL: testdb.URL(s.conn), Root: s.roots[n/2%2], LeaseTTL: stressTTL, Grace: 300 * time.Millisecond, ClockOff: off,
	}, fmt.Sprintf("%s=%d", clockVariable, int(off.Seconds())))
}

// feed queues the jobs, spread over the time. One whose fate is unknown since the server went away is not asked for again.
func (s *stress) feed(ctx context.Context) {
	ticker := time.NewTicker(max(s.chaos/time.Duration(s.jobs), time.Microsecond))
	defer ticker.Stop()
	for n := range s.jobs {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, _ = s.q.Enqueue(ctx, chaosJob(n)) // the server may be away
	}
}

// disturbFor does one bad thing after the other.
func (s *stress) disturbFor(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	for ctx.Err() == nil {
		n := rand.IntN(stressProcesses)
		switch dice := rand.IntN(100); {
		case dice < 25:
			s.kill(n)
		case dice < 50:
			s.freeze(n)
		case dice < 65:
			s.term(n)
		case dice < 80:
			s.cutConnections(ctx)
		default:
			s.cancelSome(ctx)
		}
		takes(ctx, 200*time.Millisecond)
	}
}

func (s *stress) kill(n int) {
	s.kills++
	p := s.processes[n]
	p.signal(syscall.SIGKILL)
	p.exits()
	s.replace(n, p)
}

// term stops a process as an operator would, and it must exit with 0. A frozen one can't.
func (s *stress) term(n int) {
	p := s.processes[n]
	if p.frozen.Load() {
		return
	}
	s.terms++
	p.isReady() // a signal before it is ready to record one ends any process
	p.signal(syscall.SIGTERM)
	if code := p.exits(); code != 0 {
		s.t.Errorf("a worker process ended with %d after SIGTERM:\n%s", code, p.log.tail())
	}
	s.replace(n, p)
}

func (s *stress) replace(n int, p *workerProcess) {
	s.fenced += p.log.count("lease lost")
	s.processes[n] = s.launch(n)
}

// freeze stops a process, past its leases' time or not quite, and lets it go on: it finds its jobs in other hands.
func (s *stress) freeze(n int) {
	p := s.processes[n]
	if !p.frozen.CompareAndSwap(false, true) {
		return
	}
	s.stops++
	p.signal(syscall.SIGSTOP)
	s.stopped.Go(func() {
		ctx := context.WithoutCancel(s.t.Context())
		takes(ctx, stressTTL*9/4) // from a little more than its leases hold to three times that
		if rand.IntN(3) > 0 {
			s.cutBeats(ctx)
		}
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have been killed meanwhile
		p.frozen.Store(false)
	})
}

// cutBeats ends the connections of beats: who wakes up with a new one to be made writes before it can be told what it lost.
func (s *stress) cutBeats(ctx context.Context) {
	tag, _ := s.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and query like '%migrating_to%'`) // as beats end
	s.beatsCut.Add(tag.RowsAffected())
}

// cutConnections ends connections, of whatever they belong to.
func (s *stress) cutConnections(ctx context.Context) {
	s.cut++
	_, _ = s.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and random() < 0.3`)
}

func (s *stress) cancelSome(ctx context.Context) {
	s.cancels++
	rows, err := s.pool.Query(ctx, `select id from jobs where state in ('queued', 'running') order by random() limit 3`)
	if err != nil {
		return
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return
	}
	for _, id := range ids {
		_, _ = s.q.Cancel(ctx, id) // it may have ended
	}
}

// finish lets the processes work undisturbed until nothing is left, and ends them.
func (s *stress) finish() {
	s.t.Helper()
	s.answers("at the end")
	ctx, cancel := context.WithTimeout(s.t.Context(), s.chaos+4*time.Minute) // only how long is too long
	defer cancel()
	for left := -1; left != 0; {
		if err := s.pool.QueryRow(ctx, `select count(*) from jobs where state in ('queued', 'running')`).Scan(&left); err != nil {
			s.t.Fatalf("jobs don't end: %v\n%s", err, s.unfinished())
		}
		takes(ctx, 20*time.Millisecond)
	}
	for _, p := range s.processes {
		p.isReady()
		p.signal(syscall.SIGTERM)
	}
	for _, p := range s.processes {
		if code := p.exits(); code != 0 {
			s.t.Errorf("a worker process ended with %d:\n%s", code, p.log.tail())
		}
		s.fenced += p.log.count("lease lost")
	}
}

func (s *stress) unfinished() string {
	rows, err := s.pool.Query(context.WithoutCancel(s.t.Context()), `
		select format('job %s %s: %s, epoch %s, due in %s, key %s', id, kind, state, epoch, run_at - now(), concurrency_key)
		from jobs where state in ('queued', 'running') limit 20`)
	if err != nil {
		return err.Error()
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return fmt.Sprint(left, err)
}

// report asks the witness.
func (s *stress) report() {
	s.t.Helper()
	judge(s.t, s.pool)
	var odd []string
	rows, err := s.pool.Query(s.t.Context(), `select distinct error_code from jobs where state = 'failed' and error_code not in ($1, $2, $3)`,
		codeChaos, queue.CodeBadArgs, queue.CodeCrashLoop)
	if err == nil {
		odd, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	s.no(err)
	if len(odd) > 0 {
		s.t.Errorf("jobs failed with %v", odd)
	}
	if s.beatsCut.Load() == 0 {
		s.t.Error("no connection of a beat was found: what do they send now?")
	}
	s.t.Logf("%d kills, %d stops, %d terminations, %d cuts, %d times cancels, 2 restarts; %d leases were found lost by their holders\n%s",
		s.kills, s.stops, s.terms, s.cut, s.cancels, s.fenced, tally(s.t, s.pool))
}
