package alert

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxSum   = 2000 // characters of a message that tells many: no channel takes fewer
	someOf   = 10   // names in a line, where not all have to be said
	mostRepo = 8    // such lines
)

// textOf is the message that tells some alerts, and how many of them: those behind have no room in it. What is of another kind
// than the first came with it.
func textOf(all []Alert) (text string, told int) {
	clean := make([]Alert, len(all))
	for i, a := range all {
		clean[i] = a.clean()
	}
	// One more makes it longer.
	fit := sort.Search(len(clean), func(i int) bool { return utf8.RuneCountInString(together(clean[:i+1])) > maxSum })
	told = max(fit, 1)
	return shorten(together(clean[:told]), maxSum), told
}

// together is that message, however long.
func together(all []Alert) string {
	first, rest := all[0], all[1:]
	var came []Alert
	same := []Alert{first}
	for _, a := range rest {
		if a.Kind == first.Kind {
			same = append(same, a)
		} else {
			came = append(came, a)
		}
	}
	if len(same) == 1 && len(came) == 0 {
		return first.Text(MaxText)
	}
	lines := []string{first.headline()}
	if len(same) > 1 {
		lines = []string{sumHeadline(same)}
		lines = append(lines, names(same, first.Kind == JobReaped)...)
		lines = append(lines, when(same))
	} else {
		lines = append(lines, first.facts()...)
	}
	if len(came) > 0 {
		lines = append(lines, fmt.Sprintf("So %s:", counted(len(came), "task needs you", "tasks need you")))
		lines = append(lines, names(came, false)...)
	}
	if len(same) > 1 {
		lines = append(lines, sumTodo(first)...)
	} else {
		lines = append(lines, first.todo()...)
	}
	if len(came) > 0 {
		lines = append(lines, "And then, for each task: "+retryOf(came))
	}
	return strings.Join(lines, "\n")
}

func retryOf(tasks []Alert) string {
	key := "KEY"
	if len(tasks) == 1 {
		key = cmp.Or(tasks[0].Task, key)
	}
	return fmt.Sprintf("`orch task retry %s`", key)
}

// sumHeadline is what happened more than once.
func sumHeadline(same []Alert) string {
	kind, n := same[0].Kind, len(same)
	what := map[Kind][2]string{
		JobReaped:      {"more job was reaped to failed", "more jobs were reaped to failed"},
		LeaseReclaimed: {"more merge lease was taken from its holder", "more merge leases were taken from their holders"},
		TaskBlocked:    {"more task needs you", "more tasks need you"},
		AgentPaused:    {"more agent is paused for all tasks", "more agents are paused for all tasks"},
		LandingParked:  {"more landing needs you", "more landings need you"},
		DaemonRestarts: {"more service of orch ends again and again", "more services of orch end again and again"},
		MassDeath:      {"more time too many runs seem dead at once to be believed", "more times too many runs seemed dead at once to be believed"},
		JobWaits:       {"more job waits for very long", "more jobs wait for very long"},
		JobFailed:      {"more job failed for good", "more jobs failed for good"},
	}[kind]
	return counted(n, cmp.Or(what[0], "more "+string(kind)), cmp.Or(what[1], "more "+string(kind))) + each(same[0])
}

// each is the reason that all of them have.
func each(a Alert) string {
	why := Meaning(a.Code)
	if a.Kind == AgentPaused {
		why = MeaningOfPause(a.Code)
	}
	switch {
	case a.Code == "":
		return "."
	case why == "":
		return ": " + strings.ReplaceAll(a.Code, "_", " ") + "."
	default:
		return ", each because " + why + "."
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// names are what they are about, a line for each repository; all of them, or enough to know what it is about.
func names(list []Alert, all bool) []string {
	var repos []string
	of := map[string][]string{}
	for _, a := range list {
		if !slices.Contains(repos, a.Repo) {
			repos = append(repos, a.Repo)
		}
		of[a.Repo] = append(of[a.Repo], a.name())
	}
	var lines []string
	for i, repo := range repos {
		if i == mostRepo && !all {
			return append(lines, fmt.Sprintf("and %d more repositories", len(repos)-i))
		}
		line := ""
		if repo != "" {
			line = "repository " + repo + ": "
		}
		named := of[repo]
		if more := len(named) - someOf; more > 0 && !all {
			named = append(named[:someOf:someOf], fmt.Sprintf("and %d more", more))
		}
		lines = append(lines, line+strings.Join(named, ", "))
	}
	return lines
}

// name is what an alert is about, in a word or two.
func (a Alert) name() string {
	switch a.Kind {
	case JobReaped, JobFailed, JobWaits:
		name := "job " + strconv.FormatInt(a.JobID, 10)
		if a.Task != "" {
			name += " (" + a.Task + ")"
		}
		return name
	case AgentPaused:
		return cmp.Or(a.Agent, "?")
	case LeaseReclaimed:
		return cmp.Or(a.Branch, a.Task, "?")
	case DaemonRestarts, MassDeath:
		return strings.TrimSpace(a.Host + " " + a.Reason)
	default:
		return cmp.Or(a.Task, a.Host, "?")
	}
}

// when says in which time they happened.
func when(same []Alert) string {
	byTime := slices.SortedFunc(slices.Values(same), func(a, b Alert) int { return a.At.Compare(b.At) })
	const layout = "2006-01-02 15:04"
	from, to := byTime[0].At.Format(layout), byTime[len(byTime)-1].At.Format(layout)
	at := "at " + from + " UTC"
	if to != from {
		at = "from " + from + " to " + to + " UTC"
	}
	if code := same[0].Code; code != "" {
		return "code " + code + ", " + at
	}
	return at
}

// sumTodo is what to look at, and what to type.
func sumTodo(a Alert) []string {
	switch a.Kind {
	case TaskBlocked, LandingParked:
		lines := []string{"Look: `orch task list --state blocked`"}
		if a.Code == codeNeedsInput {
			return append(lines, "Then, for each: `orch task answer KEY \"…\"`")
		}
		if hint := Hint(a.Code); hint != "" {
			lines = append(lines, "First: "+hint)
		}
		return append(lines, "Then, for each: `orch task retry KEY`, or `orch task cancel KEY`")
	case JobReaped, JobFailed:
		return []string{"Look: `orch job list --state failed`", "When their cause is gone: `orch task retry KEY`, or `orch job retry NUMBER` where there is no task"}
	case AgentPaused:
		return []string{"Look: `orch agent list`", pausedHint(a.Code) + "`orch resume --agent NAME`"}
	case JobWaits:
		return []string{"Look: `orch queue`", "Clear what they wait for: they go on by themselves."}
	default:
		return a.todo()
	}
}
