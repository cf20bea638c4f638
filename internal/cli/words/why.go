package words

import (
	"fmt"
	"strings"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
)

// Why says why a task is where it is, who has the next step, and when that will be.
func Why(d api.TaskDetail) []string {
	t := d.Task
	state := State(t)
	if d.Job != nil && d.Job.State == api.JobQueued && t.State == api.TaskActive && t.WaitingFor == nil {
		state = "queued"
	}
	lines := []string{fmt.Sprintf("%s is at %s: %s", t.Key, t.Stage, state)}
	for line := range strings.Lines(strings.TrimSpace(orZero(t.Reason))) {
		lines = append(lines, "  "+terminal.Printable(strings.TrimSpace(line)))
	}
	if Asks(t) {
		return append(lines, fmt.Sprintf("The next step is yours: `orch task answer %s \"…\"`, or `orch task cancel %s`.", t.Key, t.Key))
	}
	if t.State == api.TaskBlocked {
		return append(lines, fmt.Sprintf("The next step is yours: `orch task retry %s --note …`, or `orch task cancel %s`.", t.Key, t.Key))
	}
	if t.FinishedAt != nil {
		return append(lines, "It has ended, "+Age(*t.FinishedAt)+" ago.")
	}
	if d.Job == nil && orZero(t.WaitingFor) == PersonLands {
		return append(lines, fmt.Sprintf("The next step is yours: merge branch %s into %s, in whatever way; orch sees it and ends the task. Or `orch task cancel %s`.",
			terminal.Printable(t.Branch), terminal.Printable(t.Base), t.Key))
	}
	if t.NeedsYou {
		lines = append(lines, fmt.Sprintf("The next step is yours; then it goes on by itself. Or `orch task cancel %s`.", t.Key))
	}
	return append(lines, jobWhy(d)...)
}

// Asks says that the task's agent waits for an answer.
func Asks(t api.Task) bool {
	return t.State == api.TaskBlocked && orZero(t.ReasonCode) == "needs_input"
}

// jobWhy says what the job of a task that is under way waits for.
func jobWhy(d api.TaskDetail) []string {
	j := d.Job
	switch {
	case j == nil:
		return []string{"No job moves it. That doesn't last: if you see it again, look into the log of the server."}
	case j.State == api.JobRunning:
		return []string{fmt.Sprintf("Job %d is at work on %s%s, last heard of %s ago.", j.ID, orZero(j.Host), Job(*j, d.Runs...), Age(orZero(j.HeartbeatAt)))}
	}
	var lines []string
	if j.ErrorCode != nil && !told(j) {
		lines = append(lines, "The last attempt ended with "+*j.ErrorCode+": "+terminal.Printable(FirstLine(orZero(j.Error))))
	}
	if waits := WaitsFor(j, d.Paused); waits != "" && !d.Task.NeedsYou { // else that was said
		lines = append(lines, waits)
	}
	if wait := time.Until(j.RunAt); wait > time.Second {
		lines = append(lines, fmt.Sprintf("Job %d is looked at again in %s; %s.", j.ID, Elapsed(wait), attempts(*j)))
	} else if len(d.Paused) == 0 && d.Elsewhere == nil {
		lines = append(lines, fmt.Sprintf("Job %d is due and waits for a free slot in lane %s (`orch queue` shows them).", j.ID, j.Lane))
	}
	if d.Elsewhere != nil {
		lines = append(lines, elsewhere(j, *d.Elsewhere))
	}
	for _, p := range d.Paused {
		lines = append(lines, "It isn't begun, since "+Paused(p)+".")
	}
	return lines
}

// silent is when a data root is said to be: it is heard of some times a minute.
const silent = 2 * time.Minute

// elsewhere says where alone a job goes on, and whether anybody is there.
func elsewhere(j *api.Job, r api.DataRoot) string {
	text := fmt.Sprintf("Job %d goes on in data root %s on %s only, where its work is; that was heard of %s ago.",
		j.ID, terminal.Printable(r.Path), terminal.Printable(r.Host), Age(r.SeenAt))
	if time.Since(r.SeenAt) < silent {
		return text
	}
	return text + " Start `orch serve` or `orch worker` there; if it is gone for good, others take over after ORCH_HOST_DEAD_S."
}

// WaitsFor says what a queued job has given way to; what is paused is said elsewhere.
func WaitsFor(j *api.Job, paused []api.Pause) string {
	phase := orZero(j.Phase)
	agent, isAgent := strings.CutPrefix(phase, "agent_paused:")
	switch {
	case told(j):
		return fmt.Sprintf("It waits (%s): %s", phase, terminal.Printable(FirstLine(orZero(j.Error))))
	case isAgent && len(paused) > 0, phase == "", strings.HasPrefix(phase, "repo_paused:"):
		return ""
	case isAgent:
		return "Agent " + terminal.Printable(agent) + ", which was paused, is to begin it."
	case phase == "budget_day":
		return "Today's budget is used up: it goes on at 00:00 UTC, or within ten minutes of a higher budget in orch.yaml (`orch agent list` shows what was used)."
	case phase == "quota":
		return "The quota of its agent is used up."
	case phase == "rate_limited":
		return "Its agent was asked to slow down."
	case phase == "merge_lease":
		return "It waits for its turn to land (`orch queue` shows the line, and who holds the lease)."
	case phase == "disk_space":
		return "It waits for room on the disk."
	case phase == "repository_away":
		return "It waits for its repository, which isn't there for now or can't be read: it goes on by itself once that is back."
	case phase == "run_elsewhere":
		return "Its run is another machine's, which isn't heard of."
	default:
		return "It waits for " + terminal.Printable(strings.ReplaceAll(phase, "_", " ")) + "."
	}
}

// told says that what a job waits for was told in words by who put it off.
func told(j *api.Job) bool { return j.ErrorCode != nil && *j.ErrorCode == orZero(j.Phase) }

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
