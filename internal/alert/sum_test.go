package alert

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// some are n alerts of a kind, a minute apart.
func some(kind Kind, code string, n int) []Alert {
	list := make([]Alert, n)
	for i := range list {
		list[i] = Alert{
			Kind: kind, Code: code, Task: fmt.Sprintf("app-%d", i+1), Repo: "app", Branch: fmt.Sprintf("orch/app-%d", i+1), Agent: fmt.Sprintf("coder%d", i+1),
			JobID: int64(i + 1), Host: "h", At: time.Unix(1e9+60*int64(i), 0),
		}
	}
	return list
}

func TestSumSaysHowManyOfWhatAndWhatToType(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind][]string{
		JobReaped:      {"3 more jobs were reaped to failed, each because", "repository app: job 1 (app-1), job 2 (app-2), job 3 (app-3)", "`orch job list --state failed`", "`orch task retry KEY`"},
		LeaseReclaimed: {"3 more merge leases were taken from their holders", "orch/app-1, orch/app-2", "Nothing to do"},
		TaskBlocked:    {"3 more tasks need you, each because its process is gone.", "app-1, app-2, app-3", "`orch task list --state blocked`", "`orch task retry KEY`"},
		AgentPaused:    {"3 more agents are paused for all tasks, each because its program isn't there.", "coder1, coder2", "`orch resume --agent NAME`"},
		LandingParked:  {"3 more landings need you", "app-1, app-2", "`orch task list --state blocked`"},
		DaemonRestarts: {"3 more services of orch end again and again", "`orch doctor`"},
		MassDeath:      {"3 more times too many runs seemed dead at once", "`orch doctor`"},
		JobWaits:       {"3 more jobs wait for very long", "job 1 (app-1)", "`orch queue`"},
		JobFailed:      {"3 more jobs failed for good", "job 1 (app-1)", "`orch job list --state failed`"},
	} {
		code := "not_found"
		if kind != AgentPaused {
			code = "process_dead"
		}
		text, told := textOf(some(kind, code, 3))
		for _, want := range append(want, "code "+code, "from 2001-09-09 01:46 to 2001-09-09 01:48 UTC") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", kind, want, text)
			}
		}
		if told != 3 || strings.Count(text, "`")%2 != 0 || strings.Contains(text, "..") {
			t.Errorf("%s: %d told in %s", kind, told, text)
		}
	}
}

func TestSumOfQuestionsSaysHowToAnswer(t *testing.T) {
	t.Parallel()
	if text, _ := textOf(some(TaskBlocked, codeNeedsInput, 2)); !strings.Contains(text, "2 more tasks need you, each because its agent asks something.") ||
		!strings.Contains(text, "`orch task answer KEY \"…\"`") || strings.Contains(text, "retry") {
		t.Error(text)
	}
	for code, want := range map[string]string{"": "2 more tasks need you.", "a_code_of_2031": "2 more tasks need you: a code of 2031."} {
		if text, _ := textOf(some(TaskBlocked, code, 2)); !strings.HasPrefix(text, want) {
			t.Error(text)
		}
	}
}

// However many there are, the message has room for what it says it tells.
func TestSumTellsOfNoMoreThanItHasRoomFor(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 200)
	for _, n := range []int{1, 2, 50, 900} {
		for _, kind := range Kinds() {
			list := some(kind, "process_dead", n)
			text, told := textOf(list)
			if utf8.RuneCountInString(text) > maxSum || told < 1 || told > n {
				t.Errorf("%d of %d told in %d characters", told, n, utf8.RuneCountInString(text))
			}
			if kind == JobReaped {
				for _, a := range list[:told] {
					if !strings.Contains(text, fmt.Sprintf("ob %d ", a.JobID)) {
						t.Errorf("of %d, job %d isn't named", told, a.JobID)
					}
				}
			} else if n > 1 && told != n {
				t.Errorf("%s: %d of %d told", kind, told, n)
			}
			for i := range list {
				list[i].Repo, list[i].Task, list[i].Branch = fmt.Sprint(i, long), long, long
			}
			if text, told := textOf(list); utf8.RuneCountInString(text) > maxSum || told < 1 {
				t.Errorf("%s: %d of %d told in %d characters", kind, told, n, utf8.RuneCountInString(text))
			}
		}
	}
}

func TestWhatCameWithAnAlertIsToldInIt(t *testing.T) {
	t.Parallel()
	all := append(some(AgentPaused, codeAuth, 1), some(TaskBlocked, codeAuth, 30)...)
	text, told := textOf(all)
	if told != 31 || !strings.HasPrefix(text, "Agent coder1 is paused for all tasks") || !strings.Contains(text, "So 30 tasks need you:\nrepository app: app-1, ") ||
		!strings.Contains(text, "and 20 more") || !strings.HasSuffix(text, "And then, for each task: `orch task retry KEY`") {
		t.Errorf("%d told in %s", told, text)
	}
}

func TestWhenAnAlertIsTold(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *float64 { s := d.Seconds(); return &s }
	for name, c := range map[string]struct {
		r      rate
		putOff bool
		wait   time.Duration
		sums   bool
	}{
		"the first":                       {},
		"the third":                       {r: rate{Used: 2, SinceSingle: ago(time.Second)}},
		"the fourth":                      {r: rate{Used: 3, SinceSingle: ago(time.Minute)}, wait: 4 * time.Minute, sums: true},
		"one after others that wait":      {r: rate{Used: 1, SinceSingle: ago(time.Minute), Waits: true}, wait: 4 * time.Minute, sums: true},
		"one that has waited":             {r: rate{Used: 0, SinceSingle: ago(6 * time.Minute)}, putOff: true, sums: true},
		"the fourth, long after":          {r: rate{Used: 3, SinceSingle: ago(30 * time.Minute)}, sums: true},
		"after a sum":                     {r: rate{Used: 0, SinceSum: ago(10 * time.Minute)}, wait: 20 * time.Minute, sums: true},
		"long after a sum":                {r: rate{Used: 0, SinceSum: ago(31 * time.Minute), SinceSingle: ago(2 * time.Hour)}},
		"a clock that was wrong":          {r: rate{Used: 3, SinceSingle: ago(-time.Hour), SinceSum: ago(-time.Hour)}, sums: true},
		"others wait whose singles aged":  {r: rate{Waits: true}, sums: true},
		"after a sum, others wait for it": {r: rate{Waits: true, SinceSum: ago(29 * time.Minute)}, wait: time.Minute, sums: true},
	} {
		if wait, sums := c.r.wait(c.putOff); wait != c.wait || sums != c.sums {
			t.Errorf("%s: %s, %v", name, wait, sums)
		}
	}
}
