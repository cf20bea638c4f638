package task

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestStageTransitions(t *testing.T) {
	t.Parallel()
	want := StageTransitions{
		{Analysis, Architecture, Analysis},
		{Architecture, Development, Architecture},
		{Development, Review, Development},
		{Review, Testing, Development},
		{Testing, Deploy, Development},
		{Deploy, "", Development},
	}
	got := six().Transitions()
	for i, row := range want {
		if got[i] != row {
			t.Errorf("%+v, expected %+v", got[i], row)
		}
	}
	custom := Pipeline{Stages: []Stage{{Name: "draft", Agent: "a"}, {Name: "check"}, {Name: "polish", Agent: "b", OnFail: "draft"}, {Name: "ship", Gates: []GateRef{{Name: BranchMergeable}}}}}
	for stage, back := range map[string]string{"draft": "draft", "check": "draft", "polish": "draft", "ship": "polish"} {
		if row, known := custom.Transitions().Of(stage); !known || row.Back != back {
			t.Errorf("%s goes back to %q", stage, row.Back)
		}
	}
}

func TestPipeline_Validate(t *testing.T) {
	t.Parallel()
	for _, good := range []Pipeline{six(), Short("x", "a", ""), Short("x", "a", "make test")} {
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
	dev := Stage{Name: Development, Agent: "a"}
	for problem, stages := range map[string][]Stage{
		"has no stage":                nil,
		"stage 1 has no name":         {{Agent: "a"}},
		"is there twice":              {dev, dev},
		"neither this stage nor one":  {{Name: "a", OnFail: "b"}, {Name: "b"}},
		"must be the last one":        {dev, {Name: Deploy}, {Name: Review}},
		"no stage before it makes":    {{Name: Deploy}},
		"can't have an agent":         {dev, {Name: Deploy, Agent: "a"}},
		"its only gate is":            {dev, {Name: Deploy, Gates: []GateRef{{Name: "commits"}}}},
		"prompt: render prompt":       {{Name: "a", Prompt: "{{.Nothing}}"}},
		"prompt: parse prompt":        {{Name: "a", Prompt: "{{if}}"}},
		`can't evaluate field Secret`: {{Name: "a", Prompt: "{{if .Feedback}}{{.Secret}}{{end}}"}},
	} {
		err := Pipeline{Name: "x", Stages: stages}.Validate()
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
	if (Pipeline{MaxRuns: -1, Stages: []Stage{dev}}).Validate() == nil {
		t.Error("a negative cap is accepted")
	}
	if _, err := NewStore(nil, StoreConfig{Pipelines: Pipelines{{}}}); err == nil {
		t.Error("a store takes an empty pipeline")
	}
}

func TestRenderPrompt(t *testing.T) {
	t.Parallel()
	data := PromptData{Key: "demo-1", Title: "Title", Branch: "orch/demo-1", BaseBranch: "main", Round: 2, Rounds: 3, Feedback: "red\noutput"}
	for _, stage := range []string{Analysis, Architecture, Development, Review, Testing, "polish"} {
		data.Stage = stage
		prompt, err := RenderPrompt(Stage{Name: stage}, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"demo-1", "# Title", "stage " + stage, "round 2 of at most 3", "orch/demo-1", "Commit all your work", "red\noutput"} {
			if !strings.Contains(string(prompt), part) {
				t.Errorf("%s: no %q in\n%s", stage, part, prompt)
			}
		}
	}
	own, err := RenderPrompt(Stage{Prompt: "{{.Key}}: {{.Title}} {{.Feedback}}"}, data)
	if err != nil || string(own) != "demo-1: Title red\noutput" {
		t.Errorf("%s, %v", own, err)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]Task{
		"running":                         {State: Active, Round: 1},
		"running, try 2 of 3":             {State: Active, Round: 2},
		"running, try 4":                  {State: Active, Round: 4},
		"waiting for a person to land it": {State: Waiting, WaitingFor: PersonLands},
		"waiting for ci":                  {State: Waiting, WaitingFor: "ci"},
		"waiting for something outside":   {State: Waiting},
		"needs you":                       {State: Blocked},
		"landed":                          {State: Done, LandedCommit: "abc"},
		"done":                            {State: Done},
		"cancelled":                       {State: Cancelled},
	} {
		if got := (Pipeline{}).Words(task); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

func TestRetryClassOf(t *testing.T) {
	t.Parallel()
	for outcome, class := range map[string]RetryClass{
		"ok": RetryNone, "agent_failed": RetrySpent, "timeout": RetrySpent, "stalled": RetrySpent, "killed": RetrySpent, "what": RetrySpent,
		"auth": RetryNever, "not_found": RetryNever, "needs_input": RetryAnswer, "interrupted": RetryGiven, "quota": RetryGiven,
	} {
		if got := RetryClassOf(outcome); got != class {
			t.Errorf("%s is %s", outcome, got)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")) + rapid.StringN(0, 30, -1).Draw(t, "text")
		limit := rapid.IntRange(0, 80).Draw(t, "limit")
		if got := clean(text, limit); len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Fatalf("%q", got)
		}
	})
}

// The name of the gate and its reason survive, however long the output is.
func TestGateFeedback(t *testing.T) {
	t.Parallel()
	ref := GateRef{Name: "command", Command: strings.Repeat("c", 100)}
	text := gateFeedback(ref, GateResult{Reason: "exit code 1", OutputTail: strings.Repeat("é", 20_000) + "end"})
	if len(text) > maxText || !strings.HasPrefix(text, "Gate command failed: exit code 1") || !strings.HasSuffix(text, "end") || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %q", len(text), text[:60])
	}
}
