package reconcile_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/forge"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/testgit"
)

// stand is one way in which a task may be found.
type stand struct {
	state task.State
	code  string // of a blocked one
	stage string
	step  string // of its newest merge attempt; "" = none
	job   string // the newest that moved it; "" = none
}

func (s stand) String() string {
	return fmt.Sprintf("%s %s at %s, attempt %s, job %s", s.state, s.code, s.stage, s.step, s.job)
}

// exit is who gets a task on from there, without any message, notification or delivery.
type exit string

const (
	over      exit = "it has ended"
	byQueue   exit = "its job is claimed, or given back when its worker is dead"
	byUs      exit = "the reconciler gives it a job"
	byPerson  exit = "a person retries or cancels it"
	noBlocked      = "crash_loop" // a reason that isn't the landing's
)

// want is the exit that a task has to have. It says it for every stand, also for those that no code path leads to.
func (s stand) want() exit {
	live := s.job == "queued" || s.job == "running"
	open := s.step == "landing" || s.step == "landed"
	switch {
	case s.state.Ended():
		return over
	case live:
		return byQueue
	case s.state == task.Active, open:
		return byUs
	case s.state == task.Waiting: // the person has landed it
		return byUs
	case s.step == "parked" && s.code == "checkout_dirty":
		return byUs
	}
	return byPerson
}

func TestEachNonFinalStateHasAnExitWithoutAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, err := w.Open(t.Context(), forge.Repo{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Fetch(t.Context(), w.repo.Dir); err != nil {
		t.Fatal(err)
	}
	worker := queuetest.Worker(w.root)
	if err := w.queue.RegisterWorker(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	head := w.repo.Git("rev-parse", "main") // all that waits for a person has been landed by one
	stands := map[int64]stand{}
	w.create(demo)
	w.exec(`delete from jobs`)
	w.exec(`delete from task_events`)
	w.exec(`delete from tasks`)
	var batch pgx.Batch
	for i, s := range every() {
		id := int64(1000 + i)
		stands[id] = s
		batch.Queue(`insert into tasks (id, key, repo, title, source, branch, base_branch, pipeline, stage, state, reason_code, waiting_for, passed_commit, root_id,
				updated_at, finished_at) overriding system value
			values ($1, 'demo-' || $1::bigint, 'demo', 'T', 'cli', 'orch/demo-' || $1::bigint, 'main', 'default', $2, $3, nullif($4, ''), case when $3 = 'waiting' then 'person_lands' end,
				$5, $6, now() - interval '1 day', case when $3 in ('done', 'cancelled') then now() end)`, id, s.stage, s.state, s.code, head, w.root)
		if s.step != "" {
			batch.Queue(`insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, method, step, base_old, head_sha, land_sha, land_tree, tip_sha, tip_tree,
				last_error, finished_at) values ($1, 1, 1, 'demo', 'main', 'b', 'rebase', $2, $3, $3, $3, $3, $3, $3, nullif($4, ''),
				case when $2 in ('finalised', 'parked', 'returned') then now() end)`, id, s.step, head, s.code)
		}
		if s.job != "" {
			batch.Queue(`insert into jobs (kind, lane, max_attempts, repo, task_id, dedupe_key, state, epoch, worker_id, lease_expires_at, finished_at)
				values ('stage', 'agents', 3, 'demo', $1, 'task:' || $1::bigint, $2::job_state, 1, case when $2 = 'running' then $3::uuid end,
				case when $2 = 'running' then now() end, case when $2 not in ('queued', 'running') then now() end)`, id, s.job, worker.ID)
		}
	}
	if err := w.pool.SendBatch(t.Context(), &batch).Close(); err != nil {
		t.Fatal(err)
	}
	w.tick()
	mended := 0
	now, jobs := w.all()
	for id, s := range stands {
		now, job := now[id], jobs[id]
		switch s.want() {
		case over:
			if now.State != s.state {
				t.Errorf("%s: is %s now", s, now.State)
			}
		case byQueue:
			if now.State != s.state || !strings.HasSuffix(job, s.job) || strings.Contains(job, ",") {
				t.Errorf("%s: is %s now, with job %q", s, now.State, job)
			}
		case byUs:
			mended++
			if now.State != task.Active || !strings.HasSuffix(job, " queued") || strings.Contains(job, ",") {
				t.Errorf("%s: is %s now, with job %q", s, now.State, job)
			}
		case byPerson:
			if now.State != s.state || job != "" {
				t.Errorf("%s: is %s now, with job %q", s, now.State, job)
			}
			if s.job != "" {
				continue // an ended job is no obstacle: told by one that has none
			}
			if _, err := w.tasks.Retry(t.Context(), now.Key, "ann", ""); err != nil || w.job(id) == "" {
				t.Errorf("%s: a person's retry: %v, job %q", s, err, w.job(id))
			}
		}
	}
	if got := len(w.log.repaired()); got != mended || mended == 0 {
		t.Errorf("%d repairs, want %d", got, mended)
	}
	if got := w.log.complaints(); len(got) > 0 {
		t.Errorf("told %q", got)
	}
	t.Logf("%d stands, %d mended", len(stands), mended)
}

// all tasks as they are, and the live jobs that move them.
func (w *world) all() (tasks map[int64]task.Task, jobs map[int64]string) {
	w.t.Helper()
	tasks, jobs = map[int64]task.Task{}, map[int64]string{}
	for before := int64(0); ; {
		page, err := w.tasks.List(w.t.Context(), task.Filter{Limit: 1000, Before: before})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, t := range page {
			tasks[t.ID], before = t, t.ID
		}
		if len(page) < 1000 {
			break
		}
	}
	rows, err := w.pool.Query(w.t.Context(), `select task_id, string_agg(kind || ' ' || state, ', ') from jobs
		where dedupe_key like 'task:%' and state in ('queued', 'running') group by task_id`)
	if err != nil {
		w.t.Fatal(err)
	}
	var id int64
	var job string
	if _, err := pgx.ForEachRow(rows, []any{&id, &job}, func() error { jobs[id] = job; return nil }); err != nil {
		w.t.Fatal(err)
	}
	return tasks, jobs
}

// every stand that the tables can hold.
func every() (all []stand) {
	steps := []string{"", "queued", "preparing", "testing", "ready", "landing", "landed", "finalised", "parked", "returned"}
	for _, state := range []task.State{task.Active, task.Waiting, task.Blocked, task.Done, task.Cancelled} {
		codes := []string{""}
		if state == task.Blocked {
			codes = []string{noBlocked, task.CodeNeedsInput, "checkout_dirty"}
		}
		for _, code := range codes {
			for _, stage := range []string{"development", "deploy"} {
				for _, step := range steps {
					for _, job := range []string{"", "queued", "running", "succeeded", "failed", "cancelled"} {
						all = append(all, stand{state, code, stage, step, job})
					}
				}
			}
		}
	}
	return all
}

// tables are those that a tick might write to, with every row and the transaction that wrote it.
func (w *world) tables() string {
	w.t.Helper()
	var sums []string
	for _, table := range []string{"tasks", "task_events", "jobs", "job_totals", "counters", "latest", "runs", "merge_attempts", "merge_leases", "workers", "roots", "repositories", "schedules"} {
		rows := w.text(`select coalesce(string_agg(xmin::text || r::text, e'\n' order by ctid), '') from ` + table + ` r`)
		sum := sha256.Sum256([]byte(rows))
		sums = append(sums, table+" "+hex.EncodeToString(sum[:]))
	}
	return strings.Join(sums, "\n")
}

func TestTwentyHealthyTicksSayNothing(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testgit.New(t, map[string]string{"README": "demo\n"}))
	work := func(file string) func(work *testgit.Repo) {
		return func(work *testgit.Repo) { work.Commit("work", map[string]string{file: "x\n"}) }
	}
	parked := w.landing(true, work("a"))
	w.repo.Write(map[string]string{"README": "changed\n"})
	w.merge()
	w.rested(parked.ID, time.Hour)
	ready := w.landing(false, work("b"))
	w.merge()
	asking := w.create(demo)
	w.loseJob(asking.ID)
	w.exec(`update tasks set state = 'blocked', reason_code = 'needs_input', updated_at = now() - interval '1 day' where id = $1`, asking.ID)
	running := w.create(demo)
	worker := queuetest.Worker(w.root)
	if err := w.queue.RegisterWorker(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	w.exec(`update workers set repos = '{demo}'`)
	w.exec(`update jobs set state = 'running', epoch = 1, worker_id = $2, lease_expires_at = now() + interval '1 hour' where task_id = $1`, running.ID, worker.ID)
	w.run(running.ID, "running", w.root)
	queued, ended := w.create(demo), w.create(demo)
	w.exec(`update jobs set run_at = now() - interval '1 hour' where task_id = $1`, queued.ID)
	if _, err := w.tasks.Cancel(t.Context(), ended.Key, "ann"); err != nil {
		t.Fatal(err)
	}
	w.run(ended.ID, "finished", w.root) // its clean-up is queued
	elsewhere := w.create(demo)
	w.exec(`update tasks set root_id = $2 where id = $1`, elsewhere.ID, queuetest.Root(t, w.pool))
	states := []task.State{w.get(parked.ID).State, w.get(ready.ID).State, w.get(asking.ID).State, w.get(ended.ID).State}
	if !slices.Equal(states, []task.State{task.Blocked, task.Waiting, task.Blocked, task.Cancelled}) {
		t.Fatal(states)
	}
	before := w.tables()
	rec := w.reconciler()
	for range 20 {
		if err := rec.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.tables(); after != before {
		t.Errorf("written:\n%s\n%s", before, after)
	}
	if lines := w.log.lines(); len(lines) > 0 {
		t.Errorf("told %+v", lines)
	}
	if s := rec.Snapshot(); s.LastRun.IsZero() || s.LastError != "" || s.Failing != 0 {
		t.Errorf("%+v", s)
	}
}
