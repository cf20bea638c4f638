// Package words tells people in a few words what the API says in codes and numbers.
package words

import (
	"fmt"
	"strings"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
)

// PersonLands is what a task waits for whose tested branch a person is to land.
const PersonLands = "person_lands"

// nothingToLand is why a task is done whose commits change nothing.
const nothingToLand = "nothing_to_land"

// State is a task's state in the few words that people see.
func State(t api.Task) string {
	switch t.State {
	case api.TaskActive:
		if t.Round > 1 {
			return fmt.Sprintf("%s, try %d of %d", active(t), t.Round, t.MaxRounds)
		}
		return active(t)
	case api.TaskWaiting:
		return "waiting for " + waiting(t.WaitingFor)
	case api.TaskBlocked:
		return "needs you"
	case api.TaskDone:
		switch {
		case t.LandedCommit != nil:
			return "landed"
		case orZero(t.ReasonCode) == nothingToLand:
			return "nothing to land"
		}
		return "done"
	default:
		return string(t.State)
	}
}

// active is what goes on with a task that is under way, or what it waits for.
func active(t api.Task) string {
	switch {
	case t.NeedsYou:
		return "needs you: " + waiting(t.WaitingFor)
	case t.WaitingFor != nil:
		return "waiting for " + waiting(t.WaitingFor)
	default:
		return "running"
	}
}

func waiting(code *string) string {
	kind, name, named := strings.Cut(orZero(code), ":")
	switch {
	case kind == PersonLands:
		return "you to land it"
	case kind == "merge_lease":
		return "its turn to land"
	case kind == "budget_day":
		return "tomorrow's budget"
	case named && kind == "agent_paused":
		return "agent " + terminal.Printable(name)
	case named && kind == "repo_paused":
		return "repository " + terminal.Printable(name)
	default:
		return terminal.Printable(strings.ReplaceAll(orZero(code), "_", " "))
	}
}

// Job is how a job stands, to be put behind its state. The runs, its task's, say whose end it waits for.
func Job(j api.Job, runs ...api.Run) string {
	var b strings.Builder
	if j.Phase != nil && j.State == api.JobRunning {
		fmt.Fprintf(&b, ", %s%s", doing(j, runs), soFar(j))
	}
	if j.Pid != nil {
		fmt.Fprintf(&b, ", pid %d", *j.Pid)
	}
	if j.State == api.JobQueued && time.Until(j.RunAt) > time.Second {
		fmt.Fprintf(&b, ", next look in %s", Elapsed(time.Until(j.RunAt)))
	}
	fmt.Fprintf(&b, "; %s", attempts(j))
	return b.String()
}

// attempts is which attempt of a job it is. One that was put off has none to itself.
func attempts(j api.Job) string {
	if j.Attempt == 0 {
		return fmt.Sprintf("none of %d attempts is used up", j.MaxAttempts)
	}
	return fmt.Sprintf("attempt %d of %d", j.Attempt, j.MaxAttempts)
}

// doing is what a running job is doing. It follows agents, but commands of gates as well.
func doing(j api.Job, runs []api.Run) string {
	if *j.Phase != following {
		return Phase(*j.Phase)
	}
	if j.Kind == kindMerge {
		return Phase("testing")
	}
	for _, r := range runs {
		if r.Purpose == purposeGate && j.RunID != nil && r.ID == *j.RunID {
			return "a gate's command runs"
		}
	}
	return Phase(following)
}

// What the API calls a run of a gate's command, and a job that lands.
const (
	purposeGate = "gate"
	kindMerge   = "merge"
)

// Phase is what a job is doing.
func Phase(phase string) string {
	switch phase {
	case "preparing":
		return "preparing the workspace"
	case following:
		return "the agent works"
	case "gates":
		return "gates are checked"
	case "testing":
		return "the merged commit is tested"
	default:
		return phase
	}
}

// Ended is how a run ended.
func Ended(e api.RunEnd) string {
	switch {
	case e.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *e.ExitCode)
	case e.Signal != nil && *e.Signal != "":
		return "signal " + *e.Signal
	case e.Ended != nil:
		return *e.Ended
	default:
		return "unknown"
	}
}

// Elapsed renders a duration in a person's words: 0.4s, 12s, 3m05s, 2h10m.
func Elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Age is how long ago something was.
func Age(since time.Time) string { return Elapsed(time.Since(since)) }

// FirstLine is a text up to its first line break.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
