package alert

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// MaxText is how long a message is at most, in characters.
const MaxText = 1000

// Text is the message: what happened, to what, and what to type, in back-quotes. It has at most limit characters, and is
// plain: a channel escapes it afterwards.
func (a Alert) Text(limit int) string {
	a = a.clean()
	lines := []string{a.headline()}
	lines = append(lines, a.facts()...)
	lines = append(lines, a.todo()...)
	return shorten(strings.Join(lines, "\n"), limit)
}

// headline is what happened, and to what.
func (a Alert) headline() string {
	task, job := cmp.Or(a.Task, "?"), fmt.Sprintf("Job %d", a.JobID)
	switch a.Kind {
	case JobReaped:
		if a.Task != "" {
			job += " of task " + a.Task
		}
		return job + " was reaped to failed: " + a.why()
	case LeaseReclaimed:
		return "A merge lease was taken from its holder: " + a.why()
	case TaskBlocked:
		return "Task " + task + " needs you: " + a.why()
	case AgentPaused:
		return "Agent " + cmp.Or(a.Agent, "?") + " is paused for all tasks: " + a.why()
	case LandingParked:
		return "The landing of task " + task + " needs you: " + a.why()
	case DaemonRestarts:
		return "A service of orch ends again and again: " + a.why()
	case MassDeath:
		return "Too many runs seem dead at once to be believed: " + a.why()
	case JobWaits:
		return job + " waits for very long: " + a.why()
	case JobFailed:
		return job + " failed for good: " + a.why()
	case QueueStuck:
		return "The queue of orch is stuck: " + a.why()
	case DatabaseUnreachable:
		return "orch can't reach its database: " + a.why()
	default:
		return string(a.Kind) + ": " + a.why()
	}
}

func (a Alert) why() string {
	why := cmp.Or(a.Reason, Meaning(a.Code), strings.ReplaceAll(a.Code, "_", " "), "no reason is known")
	return strings.TrimRight(why, ".") + "."
}

// facts are where to look, in names and numbers.
func (a Alert) facts() []string {
	var of, by []string
	add := func(to *[]string, name, value string) {
		if value != "" {
			*to = append(*to, name+" "+value)
		}
	}
	add(&of, "task", a.Task)
	add(&of, "repository", a.Repo)
	add(&of, "branch", a.Branch)
	if a.JobID != 0 {
		add(&by, "job", strconv.FormatInt(a.JobID, 10))
	}
	add(&by, "run", a.RunID)
	add(&by, "agent", a.Agent)
	if a.PID != 0 {
		add(&by, "pid", strconv.Itoa(a.PID))
	}
	add(&by, "host", a.Host)
	at := "at " + a.At.Format("2006-01-02 15:04 UTC")
	if a.Code != "" {
		at = "code " + a.Code + ", " + at
	}
	var lines []string
	for _, facts := range [][]string{of, by} {
		if len(facts) > 0 {
			lines = append(lines, strings.Join(facts, ", "))
		}
	}
	return append(lines, at)
}

// todo is what to look at, and what to type.
func (a Alert) todo() []string {
	if a.Task != "" && (a.Kind == TaskBlocked || a.Kind == LandingParked || a.Kind == JobReaped) {
		return a.todoTask()
	}
	show := fmt.Sprintf("Look: `orch job show %d`", a.JobID)
	switch a.Kind {
	case JobReaped, JobFailed:
		return []string{show, fmt.Sprintf("When its cause is gone: `orch job retry %d`", a.JobID)}
	case LeaseReclaimed:
		return []string{"Nothing to do: the next in line lands. If it comes again and again, look at that host: `orch doctor`"}
	case AgentPaused:
		name := cmp.Or(a.Agent, "?")
		return []string{"Look: `orch agent list`", pausedHint(a.Code) + fmt.Sprintf("`orch resume --agent %s`", name)}
	case DaemonRestarts:
		return []string{"Look: the log of orch on that host, and `orch doctor`", "The rest of orch goes on. If it lasts, start orch anew: agents that run go on."}
	case MassDeath:
		return []string{"Look: is the disk with the data root there? `orch doctor`", "Nothing is ended for now. If they are really dead, wait: they are cleared away one by one."}
	case JobWaits:
		if a.Task != "" {
			return []string{fmt.Sprintf("Look: `orch why %s`", a.Task), fmt.Sprintf("Clear what it waits for, or `orch task cancel %s`", a.Task)}
		}
		return []string{show, "Clear what it waits for: it goes on by itself."}
	case QueueStuck:
		return []string{"Look: `orch queue` and `orch doctor`; is the lane `system` paused, is a worker there?", "Then: `orch resume --lane system`, or start orch anew: agents that run go on."}
	case DatabaseUnreachable:
		return []string{"Look: `orch doctor`, and the server and the disk of PostgreSQL", "Nothing new begins or lands meanwhile. orch goes on by itself once it answers."}
	default:
		return []string{"Look: `orch queue` and `orch doctor`"}
	}
}

// todoTask is what to type for a task that only a person moves.
func (a Alert) todoTask() []string {
	look := fmt.Sprintf("Look: `orch task show %s`", a.Task)
	if a.Code == codeNeedsInput {
		return []string{look, fmt.Sprintf("Then: `orch task answer %s \"…\"`", a.Task)}
	}
	lines := []string{look}
	if hint := Hint(a.Code); hint != "" {
		lines = append(lines, "First: "+hint)
	}
	return append(lines, fmt.Sprintf("Then: `orch task retry %s`, or `orch task cancel %s`", a.Task, a.Task))
}

func pausedHint(code string) string {
	switch code {
	case codeAuth:
		return "Sign it in, or give it a key that is good, then: "
	case codeNotFound:
		return "Install its program, or correct its command in orch.yaml, then: "
	default:
		return "It goes on by itself at that time; sooner with "
	}
}
