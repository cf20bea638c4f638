package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"orch/api"
)

// judge compares what happened with what the agents noted themselves.
func (c *chaos) judge() {
	c.t.Helper()
	seen := c.judgeTasks()
	c.none("runs of one attempt", `
		select format('task %s, %s, attempt %s of job %s: %s runs', task_id, key, attempt, job_id, count(*)) from runs
		where purpose = 'agent' and outcome not in ('never_started', 'interrupted', 'orphaned', 'cancelled', 'quota', 'rate_limited')
		group by task_id, key, attempt, job_id having count(*) > 1`)
	c.none("runs without an end", `select format('%s is %s', id, state) from runs where state <> 'finished'`)
	c.none("results that nobody used", `select id::text from runs where consumed_at is null`)
	c.none("merges left", `select format('%s is held', target) from merge_leases where job_id is not null`)
	if most := int64(chaosLogCapMB) << 20; c.diskMax > most+most/4 {
		c.t.Errorf("the log of a run took %d bytes, its cap is %d", c.diskMax, most)
	}
	c.judgeMain()
	if err := c.s.end(syscall.SIGTERM); err != nil {
		c.t.Errorf("orch serve ended with %v", err)
	}
	c.judgeProcesses(seen)
	c.t.Logf("%d tasks, %d runs of agents; orch killed %d times and stopped %d times, %d agents and %d shims killed; the largest log took %d KiB",
		c.tasks, len(seen), c.kills, c.terms, c.agents, c.shims, c.diskMax>>10)
}

func (c *chaos) none(what, sql string) {
	c.t.Helper()
	if found := c.ask(sql); len(found) > 0 {
		c.t.Errorf("%s:\n%s", what, strings.Join(found, "\n"))
	}
}

// judgeTasks returns the runs of agents that have started.
func (c *chaos) judgeTasks() (seen []uuid.UUID) {
	c.t.Helper()
	tally := map[string]int{}
	for key, kind := range c.kinds {
		d, err := c.s.client.GetTask(c.t.Context(), key)
		if err != nil {
			c.t.Fatal(err)
		}
		end := string(d.Task.State)
		if d.Task.State == api.TaskBlocked {
			end = *d.Task.ReasonCode
		}
		tally[kind.name+": "+end]++
		if end != kind.ends && !c.shotLast(d, end) {
			c.t.Errorf("%s, whose agent %s, ended as %s, want %s (%v)", key, kind.name, end, kind.ends, value(d.Task.Reason))
		}
		for _, run := range d.Runs {
			if run.Purpose == "agent" && c.judgeRun(key, kind, run) {
				seen = append(seen, run.ID)
			}
		}
	}
	started, err := filepath.Glob(filepath.Join(c.p.dir, "starts", "*"))
	if err != nil || len(started) != len(seen) {
		c.t.Errorf("%d runs started, %d are known: %v", len(started), len(seen), err)
	}
	for end, n := range tally {
		c.t.Logf("%3d %s", n, end)
	}
	return seen
}

// shotLast says whether a task came to that end because its last attempt was the one that was shot.
func (c *chaos) shotLast(d api.TaskDetail, end string) bool {
	var last api.Run
	for _, run := range d.Runs {
		if run.Purpose == "agent" && run.CreatedAt.After(last.CreatedAt) {
			last = run
		}
	}
	return c.shot[last.ID] != "" && (end == "killed" || end == "crashed")
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// judgeRun says whether the run's agent has started.
func (c *chaos) judgeRun(key string, kind chaosKind, run api.Run) bool {
	c.t.Helper()
	id := run.ID.String()
	switch starts := strings.Count(c.p.read("starts/"+id), "\n"); starts {
	case 0:
		return false
	case 1:
	default:
		c.t.Errorf("%s: run %s started %d times", key, id, starts)
	}
	if code := strings.TrimSpace(c.p.read("ends/" + id)); code != "" && c.shot[run.ID] == "" {
		if run.ExitCode == nil || strconv.Itoa(*run.ExitCode) != code {
			c.t.Errorf("%s, whose agent %s: run %s ended by itself with %s, known is code %v, ended %v", key, kind.name, id, code,
				value(run.ExitCode), value(run.Ended))
		}
	}
	c.judgeOutput(key, kind, run)
	return true
}

// judgeOutput looks for each line that the agent had written before it noted so. What is in the pipe when the shim is
// killed goes with it, which is one line at most here. Of a flood the last line is kept, if the agent came to it.
func (c *chaos) judgeOutput(key string, kind chaosKind, run api.Run) {
	c.t.Helper()
	said, _ := strconv.Atoi(strings.TrimSpace(c.p.read("said/" + run.ID.String())))
	if what := c.shot[run.ID]; what == "shim" || what == "both" {
		said--
	}
	text, whole := c.output(run.ID)
	lines := strings.Split(text, "\n")
	finished := c.p.read("ends/"+run.ID.String()) != ""
	for n := 1; n <= said; n++ {
		if !slices.Contains(lines, "line "+strconv.Itoa(n)) && (whole || n == said && finished) {
			c.t.Errorf("%s, whose agent %s: line %d of %d isn't in the log of run %s (shot: %q)", key, kind.name, n, said, run.ID, c.shot[run.ID])
		}
	}
}

// output reads what is kept of a run's output; whole means that nothing was dropped.
func (c *chaos) output(run uuid.UUID) (text string, whole bool) {
	c.t.Helper()
	var all strings.Builder
	whole = true
	for offset := int64(0); ; {
		log, err := c.s.client.ReadLog(c.t.Context(), run, offset, 1<<20)
		if err != nil {
			c.t.Fatalf("log of run %s: %v", run, err)
		}
		whole = whole && log.Offset == offset
		if len(log.Text) == 0 {
			return all.String(), whole
		}
		all.Write(log.Text)
		offset = log.Next
	}
}

// judgeMain checks that each task that is done is on main once, that no other is, and that nothing is broken.
func (c *chaos) judgeMain() {
	c.t.Helper()
	for _, name := range []string{"app", "slow", "meter", "locked"} {
		at := *c.p
		at.repo = filepath.Join(c.p.dir, name)
		landed := map[string]int{}
		for subject := range strings.Lines(at.git("log", "--format=%s", "main") + "\n") {
			landed[strings.TrimSpace(strings.TrimPrefix(subject, "Do "))]++
		}
		for key, kind := range c.kinds {
			want := 0
			if kind.ends == "done" {
				want = 1
			}
			if kind.repo == name && landed[key] != want {
				c.t.Errorf("%s, whose agent %s, is on main %d times, want %d", key, kind.name, landed[key], want)
			}
		}
		at.git("fsck", "--no-dangling")
		if left := at.git("status", "--porcelain"); left != "" {
			c.t.Errorf("the checkout of %s is dirty: %s", name, left)
		}
	}
}

// judgeProcesses looks for whatever carries the mark of a run.
func (c *chaos) judgeProcesses(runs []uuid.UUID) {
	c.t.Helper()
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range processes {
		env, err := os.ReadFile(filepath.Join(proc, "environ"))
		if err != nil {
			continue
		}
		for _, run := range runs {
			if strings.Contains(string(env), "ORCH_RUN="+run.String()) {
				pid, _ := strconv.Atoi(filepath.Base(proc))
				c.t.Errorf("process %d of run %s is left: %s", pid, run, arguments(pid))
			}
		}
	}
}
