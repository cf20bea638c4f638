package flow

import (
	"fmt"
	"strings"
	"testing"
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
	got := all().Transitions()
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
	for _, good := range []Pipeline{all(), Short("x", "a", ""), Short("x", "a", "make test")} {
		if err := good.Validate(nil); err != nil {
			t.Error(err)
		}
	}
	dev := Stage{Name: Development, Agent: "a"}
	for problem, stages := range map[string][]Stage{
		"has no stage":               nil,
		"stage 1 has no name":        {{Agent: "a"}},
		"is there twice":             {dev, dev},
		"neither this stage nor one": {{Name: "a", OnFail: "b"}, {Name: "b"}},
		"must be the last one":       {dev, {Name: Deploy}, {Name: Review}},
		"no stage before it makes":   {{Name: Deploy}},
		"can't have an agent":        {dev, {Name: Deploy, Agent: "a"}},
		"its only gate is":           {dev, {Name: Deploy, Gates: []GateRef{{Name: "commits"}}}},
	} {
		err := Pipeline{Name: "x", Stages: stages}.Validate(nil)
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
	checked := Pipeline{Name: "x", Stages: []Stage{{Name: "a", Agent: "a"}, {Name: "b", Agent: "a", Prompt: "text"}}}
	refuse := func(stage, text string) error { return fmt.Errorf("%s of %s is refused", text, stage) }
	if err := checked.Validate(refuse); err == nil || err.Error() != `pipeline "x": stage "b": prompt: text of b is refused` {
		t.Error(err)
	}
	if (Pipeline{MaxRounds: -1, Stages: []Stage{dev}}).Validate(nil) == nil {
		t.Error("a negative cap is accepted")
	}
}

// all is the pipeline with all stages.
func all() Pipeline {
	gates := []GateRef{{Name: "commits"}}
	return Pipeline{Name: "all", Stages: []Stage{
		{Name: Analysis, Agent: "a", Gates: gates},
		{Name: Architecture, Agent: "b", Gates: gates},
		{Name: Development, Agent: "c", Gates: gates},
		{Name: Review, Agent: "d", Gates: gates},
		{Name: Testing, Gates: gates},
		{Name: Deploy, Gates: []GateRef{{Name: BranchMergeable}}},
	}}
}
