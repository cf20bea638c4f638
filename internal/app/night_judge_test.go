package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/alert"
)

// crashes is how often whoever works on a job has to die before that is a crash loop.
const crashes = 6

// judge looks at what the night has left.
func (n *night) judge() {
	n.t.Helper()
	n.judgeTasks()
	n.judgeRuns()
	n.none("jobs in hand", `select format('job %s %s is %s', id, kind, state) from jobs where state in ('queued', 'running') and kind <> 'jobs.prune'`)
	n.none("merge leases held", `select format('%s %s by %s', repo, target, branch) from merge_leases where job_id is not null`)
	n.none("landings open", `select format('attempt %s is %s', id, step) from merge_attempts where finished_at is null`)
	n.none("runs without an end, or not used", `select format('run %s for %s is %s', id, purpose, state) from runs where state <> 'finished' or consumed_at is null`)
	n.none("attempts with several runs", `select format('job %s, attempt %s, key %s: %s', job_id, attempt, key, string_agg(outcome, ' ')) from runs
		where outcome not in ('never_started', 'interrupted') group by job_id, attempt, key having count(*) > 1`)
	if twice := n.file("twice"); twice != "" {
		n.t.Errorf("an agent was started beside a living one for\n%s", twice)
	}
	n.judgeMain()
	n.judgeReaps()
	n.judgeReclaims()
	n.judgeAlerts()
	n.judgePanics()
	n.judgeQueue()
	n.container.end(unix.SIGTERM)
	n.server.end(unix.SIGTERM)
	for _, orch := range []*serving{n.container, n.server} {
		if how := orch.ended(); how != "exit status 0" {
			n.t.Errorf("orch ended with %s", how)
		}
	}
	n.until("no process is left", func() bool { return len(n.processes()) == 0 })
}

func (n *night) none(what, sql string) {
	n.t.Helper()
	if found := list(n, pgx.RowTo[string], sql); len(found) > 0 {
		n.t.Errorf("%s:\n%s", what, strings.Join(found, "\n"))
	}
}

// counted are the rows of a table of numbers, by name.
func counted(head string, numbers map[string]int) []string {
	rows := []string{head}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		rows = append(rows, fmt.Sprintf("%s\t%d", name, numbers[name]))
	}
	return rows
}

// judgeTasks checks that each task is done, or blocked after as many attempts as it had, each of which something has hit.
func (n *night) judgeTasks() {
	n.t.Helper()
	rows := []string{"task\tend\treason\truns"}
	for _, key := range n.keys {
		d, err := n.server.client.GetTask(n.t.Context(), key)
		if err != nil {
			n.t.Fatal(err)
		}
		reason, runs := "", []string{}
		if d.Task.ReasonCode != nil {
			reason = *d.Task.ReasonCode
		}
		slices.SortFunc(d.Runs, func(a, b api.Run) int { return a.CreatedAt.Compare(b.CreatedAt) })
		for _, run := range d.Runs {
			if run.Purpose == "agent" && run.Outcome != nil {
				runs = append(runs, *run.Outcome)
			}
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s", key, d.Task.State, reason, strings.Join(runs, ", ")))
		switch {
		case d.Task.State == api.TaskDone && key != asks && key != fails:
		case d.Task.State == api.TaskBlocked && n.excused(d.Task.ID, key, reason):
		default:
			n.t.Errorf("%s is %s: %s %v", key, d.Task.State, reason, deref(d.Task.Reason))
		}
	}
	newTable(n.t, rows)
	newTable(n.t, counted("fault\thits", n.faults))
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// excused says whether a task is rightly blocked for a reason.
func (n *night) excused(id int64, key, reason string) bool {
	n.t.Helper()
	switch reason {
	case "needs_input":
		return key == asks
	case "killed", "crashed", "agent_failed":
		return n.ask(`select count(*) from jobs j where task_id = $1 and state = 'failed' and error_code = $2 and max_attempts <= (
			select count(*) from runs where job_id = j.id and purpose = 'agent' and outcome in ('killed', 'crashed', 'agent_failed'))`, id, reason) == 1
	case "crash_loop":
		return n.deaths+n.outages >= crashes
	}
	return false
}

// judgeRuns checks that whatever kept a run from doing what it should has hit it.
func (n *night) judgeRuns() {
	n.t.Helper()
	type end struct {
		ID      uuid.UUID
		Task    string
		Purpose string
		Outcome string
		Error   string
	}
	ends := map[string]int{}
	for _, run := range list(n, pgx.RowToStructByPos[end], `
		select r.id, t.key, purpose, outcome, r.error from runs r join tasks t on t.id = r.task_id`) {
		ends[run.Purpose+"\t"+run.Outcome]++
		isTrue := map[string]bool{
			"ok":            true,
			"killed":        n.hits[run.ID] == "agent killed",
			"crashed":       n.hits[run.ID] == "shim killed",
			"interrupted":   n.hits[run.ID] == "namespace gone",
			"needs_input":   run.Task == asks,
			"agent_failed":  run.Task == fails,
			"never_started": n.deaths+n.outages > 0,
		}[run.Outcome]
		if !isTrue {
			n.t.Errorf("run %s for %s ended as %s (%s), hit by: %q", run.ID, run.Purpose, run.Outcome, run.Error, n.hits[run.ID])
		}
	}
	newTable(n.t, counted("run for\toutcome\tends", ends))
}

// judgeMain checks that each task that is done has landed once, and no other.
func (n *night) judgeMain() {
	n.t.Helper()
	landed := map[string]int{}
	for subject := range strings.Lines(n.repo.Git("log", "--format=%s", "main") + "\n") {
		landed[strings.TrimSpace(subject)]++
	}
	done := list(n, pgx.RowTo[string], `select key from tasks where state = 'done'`)
	for _, key := range n.keys {
		want := 0
		if slices.Contains(done, key) {
			want = 1
		}
		if got := landed["Do "+key]; got != want {
			n.t.Errorf("%s has landed %d times, want %d", key, got, want)
		}
	}
	n.repo.Git("fsck", "--no-dangling", "--no-progress")
	if dirty := n.repo.Git("status", "--porcelain"); dirty != "" {
		n.t.Errorf("the checkout shows\n%s", dirty)
	}
	if total := n.ask(`select coalesce(sum(total), 0)::int from counters where name = 'landed_total'`); total != len(done) {
		n.t.Errorf("%d landings are counted, %d tasks are done", total, len(done))
	}
}

// judgeReaps checks that each job that was taken from the dead was told, in full.
func (n *night) judgeReaps() {
	n.t.Helper()
	reasons := map[string]int{}
	told := n.told(reapedMessage)
	for _, l := range told {
		reasons[l.text("reason")+"\t"+l.text("outcome")]++
		n.inFull(l, "job_id", "run_id", "task", "repo", "branch", "pid", "host", "kind", "reason")
	}
	n.within("jobs reaped", len(told), n.counter("reaped_total"))
	newTable(n.t, counted("job reaped\toutcome\tlines", reasons))
	given := map[string]int{}
	for _, l := range n.told(givenMessage) {
		given[l.text("reason")]++
		n.inFull(l, "job_id", "run_id", "task", "repo", "branch", "pid", "host", "kind", "reason")
	}
	newTable(n.t, counted("job taken, its run is gone on with\tlines", given))
}

// inFull checks that a line is a warning with all of the keys.
func (n *night) inFull(l line, keys ...string) {
	n.t.Helper()
	for _, key := range keys {
		if _, there := l[key]; !there || l["level"] != "WARN" {
			n.t.Errorf("told without %s: %v", key, l)
		}
	}
}

// judgeReclaims checks that each merge lease that was taken from its holder was told. Who dies, or loses the database's answer,
// just then may have taken one and told nothing.
func (n *night) judgeReclaims() {
	n.t.Helper()
	reasons, of := map[string]int{}, map[string]int{}
	told := n.told("merge lease reclaimed")
	for _, l := range told {
		reasons[l.text("reason")]++
		of[l.text("branch")]++
		n.inFull(l, "repo", "target", "branch", "pid", "host", "job_id", "run_id", "age_s")
	}
	n.within("merge leases reclaimed", len(told), n.counter("lease_reclaimed_total"))
	for _, branch := range n.left {
		if of[branch] == 0 && len(told) == n.counter("lease_reclaimed_total") {
			n.t.Errorf("the reclaim of the lease of %s isn't told", branch)
		}
	}
	newTable(n.t, counted("lease reclaimed\tlines", reasons))
}

// within compares what the log tells with what is counted.
func (n *night) within(what string, told, counted int) {
	n.t.Helper()
	if told > counted || told < counted-n.deaths-n.outages {
		n.t.Errorf("%s: the log tells of %d, counted are %d; there were %d deaths and %d outages", what, told, counted, n.deaths, n.outages)
	}
	n.t.Logf("%s: %d told, %d counted", what, told, counted)
}

func (n *night) counter(name string) int {
	n.t.Helper()
	return n.ask(`select coalesce(sum(total), 0)::int from counters where name = $1`, name)
}

// judgeQueue checks that GET /queue says the same.
func (n *night) judgeQueue() {
	n.t.Helper()
	var q api.Queue
	n.until("the snapshot is of now", func() bool {
		var err error
		q, err = n.server.client.Queue(n.t.Context())
		return err == nil && q.Counts.Running == 0 && q.Counts.Queued <= 1
	})
	if len(q.Running) != 0 || len(q.Leases) != 0 || len(q.MergeQueue) != 0 || q.Tasks.Active != 0 {
		n.t.Errorf("/queue shows running %v, leases %v, landings %v, %d active tasks", q.Running, q.Leases, q.MergeQueue, q.Tasks.Active)
	}
	for name, shown := range map[string]int64{
		"landed_total": q.Tasks.LandedTotal, "reaped_total": q.Reaper.ReapedTotal, "lease_reclaimed_total": q.Reaper.LeaseReclaimedTotal,
		"repaired_total": q.Reconcile.RepairedTotal,
	} {
		if want := n.counter(name); int(shown) != want {
			n.t.Errorf("/queue shows %d as %s, want %d", shown, name, want)
		}
	}
}

// judgeAlerts checks that each alert that was due is a job, made with its cause, and that each of them has come to Telegram.
func (n *night) judgeAlerts() {
	n.t.Helper()
	kinds, texts, inSums := map[string]int{}, map[string]int{}, 0
	for _, m := range n.bot.Messages() {
		texts[m.Text]++
		if count, rest, _ := strings.Cut(m.Text, " "); strings.HasPrefix(rest, "more ") {
			told, err := strconv.Atoi(count)
			if err != nil {
				n.t.Errorf("Telegram was sent %q", m.Text)
			}
			inSums += told
		}
	}
	var untold []string
	for _, args := range list(n, pgx.RowTo[[]byte], `select args from jobs where kind = 'alert.telegram' and state = 'succeeded'`) {
		var a alert.Alert
		if err := json.Unmarshal(args, &a); err != nil {
			n.t.Fatal(err)
		}
		kinds[string(a.Kind)]++
		if texts[a.Text(alert.MaxText)] == 0 {
			untold = append(untold, string(args))
		}
	}
	if len(untold) > inSums {
		n.t.Errorf("Telegram has messages that tell %d alerts together, and none of its own of these %d:\n%s", inSums, len(untold), strings.Join(untold, "\n"))
	}
	n.none("alerts that weren't sent", `select format('%s: %s %s', args, state, error_code) from jobs where kind like 'alert.%' and state <> 'succeeded'`)
	if got, want := kinds[string(alert.LeaseReclaimed)], n.counter("lease_reclaimed_total"); got != want {
		n.t.Errorf("%d alerts of reclaimed merge leases, want %d", got, want)
	}
	blocked := kinds[string(alert.TaskBlocked)] + kinds[string(alert.LandingParked)] + kinds[string(alert.JobReaped)]
	if want := n.ask(`select count(*) from task_events where kind = 'blocked'`); blocked != want {
		n.t.Errorf("%d alerts of tasks that are blocked, want %d", blocked, want)
	}
	newTable(n.t, counted("alert\tsent", kinds))
	n.t.Logf("Telegram took %d messages, of %d tries; %d alerts were told together", len(n.bot.Messages()), n.bot.Tries(), inSums)
}

// judgePanics checks that each daemon that was made to panic did, and works again.
func (n *night) judgePanics() {
	n.t.Helper()
	left, err := os.ReadDir(filepath.Join(n.dir, "panics"))
	if err != nil {
		n.t.Fatal(err)
	}
	panicked := 0
	for _, l := range n.told("recovered from a panic") {
		if l.text("panic") != madeToPanic {
			n.t.Errorf("a panic: %v", l)
			continue
		}
		panicked++
	}
	n.within("daemons that panicked", panicked, n.faults["daemon panics"]-len(left))
	var ready api.Readiness
	n.until("everything is ready", func() bool {
		var err error
		ready, err = n.server.client.Readiness(n.t.Context())
		return err == nil && ready.Status == "ready"
	})
}
