// Package flow has the pipelines of tasks: which stages a task passes, and the stage table, by which alone it moves.
package flow

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Names of stages that orch knows something about.
const (
	Analysis     = "analysis"
	Architecture = "architecture"
	Development  = "development"
	Review       = "review"
	Testing      = "testing"
	Deploy       = "deploy"
)

// BranchMergeable is the gate that the merge job is.
const BranchMergeable = "branch_mergeable"

const defaultMaxRounds = 3

// GateRef names one gate of a stage and what it needs.
type GateRef struct {
	Name    string
	Command string
	Paths   []string
	Timeout time.Duration
}

// Stage is one step of a pipeline.
type Stage struct {
	Name   string
	Agent  string // name of the agent; empty: only the gates are asked
	Prompt string // text/template; empty = the built-in one
	Gates  []GateRef
	OnFail string // stage that a red gate sends the task back to; empty = the default of the table
	Method string // of a landing stage: how the change lands
}

// Landing says that the stage is done by a merge job.
func (s Stage) Landing() bool {
	return s.Name == Deploy || slices.ContainsFunc(s.Gates, func(g GateRef) bool { return g.Name == BranchMergeable })
}

// Pipeline is the ordered list of stages that a task passes.
type Pipeline struct {
	Name      string
	Stages    []Stage
	MaxRounds int // zero = 3
}

// Rounds is the cap on rounds.
func (p Pipeline) Rounds() int {
	if p.MaxRounds > 0 {
		return p.MaxRounds
	}
	return defaultMaxRounds
}

// Stage returns the stage of that name.
func (p Pipeline) Stage(name string) (Stage, bool) {
	if i := p.index(name); i >= 0 {
		return p.Stages[i], true
	}
	return Stage{}, false
}

func (p Pipeline) index(name string) int {
	return slices.IndexFunc(p.Stages, func(s Stage) bool { return s.Name == name })
}

// Transition is one row of the stage table: where a task goes from Stage.
type Transition struct {
	Stage string
	Next  string // when the gates are green; empty: the task is done
	Back  string // when a gate is red
}

// StageTransitions is the table by which a pipeline moves its tasks. Nothing moves a task around it.
type StageTransitions []Transition

// Transitions derives the table.
func (p Pipeline) Transitions() StageTransitions {
	table := make(StageTransitions, 0, len(p.Stages))
	for i, stage := range p.Stages {
		row := Transition{Stage: stage.Name, Back: p.back(i)}
		if i+1 < len(p.Stages) {
			row.Next = p.Stages[i+1].Name
		}
		table = append(table, row)
	}
	return table
}

// Of returns the row of a stage.
func (t StageTransitions) Of(stage string) (Transition, bool) {
	for _, row := range t {
		if row.Stage == stage {
			return row, true
		}
	}
	return Transition{}, false
}

// back is where a red gate of stage i sends the task: where the stage says, else review and testing to development,
// else to whoever can do something about it, which is the stage's own agent or the nearest one before it.
func (p Pipeline) back(i int) string {
	stage := p.Stages[i]
	if stage.OnFail != "" {
		return stage.OnFail
	}
	if stage.Name == Review || stage.Name == Testing || stage.Landing() {
		if dev := p.index(Development); dev >= 0 && dev < i {
			return Development
		}
	}
	for ; i >= 0; i-- {
		if p.Stages[i].Agent != "" && !p.Stages[i].Landing() {
			return p.Stages[i].Name
		}
	}
	return p.Stages[0].Name
}

// Validate says everything that is wrong with the pipeline, or nil. checkPrompt looks at the template of a stage of
// that name; nil lets every prompt pass.
func (p Pipeline) Validate(checkPrompt func(stage, text string) error) error {
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("pipeline %q: "+format, append([]any{p.Name}, args...)...))
	}
	if len(p.Stages) == 0 {
		add("has no stage")
	}
	if p.MaxRounds < 0 {
		add("a cap is negative")
	}
	for i, stage := range p.Stages {
		switch {
		case stage.Name == "":
			add("stage %d has no name", i+1)
		case p.index(stage.Name) != i:
			add("stage %q is there twice", stage.Name)
		}
		if back := p.index(stage.OnFail); stage.OnFail != "" && (back < 0 || back > i) {
			add("stage %q: on_fail %q is neither this stage nor one before it", stage.Name, stage.OnFail)
		}
		if checkPrompt != nil && stage.Prompt != "" {
			if err := checkPrompt(stage.Name, stage.Prompt); err != nil {
				add("stage %q: prompt: %w", stage.Name, err)
			}
		}
		if stage.Landing() {
			for _, problem := range landingProblems(stage, i == 0, i == len(p.Stages)-1) {
				add("stage %q %s", stage.Name, problem)
			}
		}
	}
	return errors.Join(problems...)
}

func landingProblems(stage Stage, first, last bool) []string {
	var problems []string
	if first {
		problems = append(problems, "lands a change, but no stage before it makes one")
	}
	if !last {
		problems = append(problems, "lands the change and must be the last one")
	}
	if stage.Agent != "" {
		problems = append(problems, "lands the change and can't have an agent")
	}
	for _, gate := range stage.Gates {
		if gate.Name != BranchMergeable {
			problems = append(problems, fmt.Sprintf("lands the change: its only gate is %s, move %q to the stage before", BranchMergeable, gate.Name))
		}
	}
	return problems
}

// Short is the pipeline of a repository that configures none: one agent, a test command (none when empty), a landing.
func Short(name, agent, test string) Pipeline {
	gates := []GateRef{{Name: "commits"}}
	if test != "" {
		gates = append(gates, GateRef{Name: "command", Command: test})
	}
	return Pipeline{Name: name, Stages: []Stage{
		{Name: Development, Agent: agent, Gates: gates},
		{Name: Deploy, Gates: []GateRef{{Name: BranchMergeable}}},
	}}
}
