package orchyaml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"orch/internal/config"
)

// stageNames are the words a pipeline is made of, in their usual order.
func stageNames() []string {
	return []string{"analysis", "architecture", stageDevelopment, "review", "testing", StageDeploy}
}

func gateNames() []string { return []string{GateCommits, GateCommand, GateBranchMergeable} }

func methods() []string {
	return []string{MethodFastForward, MethodRebase, MethodMerge, MethodSquash}
}

func (r *resolver) pipelines() {
	for _, name := range slices.Sorted(maps.Keys(r.doc.data.Pipelines)) {
		raw := r.doc.data.Pipelines[name]
		if !config.ValidName(name) {
			r.at("pipelines", name)("pipeline %q: %s", name, config.NameRule)
		}
		if len(raw) == 0 {
			r.at("pipelines", name)("pipeline %s has no stages", name)
		}
		before := len(r.problems)
		pipeline := Pipeline{Name: name}
		for i, stage := range raw {
			pipeline.Stages = append(pipeline.Stages, r.stage(pipeline, i, stage))
		}
		if len(r.problems) == before {
			r.file.pipelines[name] = pipeline
		}
	}
}

// stage checks one stage against those before it.
func (r *resolver) stage(p Pipeline, i int, raw stageYAML) Stage {
	at := func(key string) func(string, ...any) { return r.at("pipelines", p.Name, i, key) }
	stage := Stage{Name: raw.Stage, Agent: raw.Agent}
	switch {
	case !slices.Contains(stageNames(), raw.Stage):
		at("stage")("stage %q isn't known; allowed: %s", raw.Stage, strings.Join(stageNames(), ", "))
	case slices.ContainsFunc(p.Stages, func(s Stage) bool { return s.Name == raw.Stage }):
		at("stage")("stage %s is in pipeline %s twice", raw.Stage, p.Name)
	case i > 0 && p.Stages[i-1].Name == StageDeploy:
		at("stage")("stage %s comes after deploy, which lands the change and ends the task", raw.Stage)
	}
	stage.Gates = r.gates(p.Name, i, raw)
	if raw.Stage == StageDeploy {
		r.deploy(p.Name, i, raw, &stage)
	} else {
		r.work(p.Name, i, raw, &stage)
	}
	stage.OnFail = r.onFail(p, i, stage, raw.OnFail)
	return stage
}

func (r *resolver) deploy(pipeline string, i int, raw stageYAML, stage *Stage) {
	if raw.Agent != "" || raw.Prompt != "" {
		r.at("pipelines", pipeline, i)("deploy lands what earlier stages made; no agent works in it")
	}
	if len(stage.Gates) != 1 || stage.Gates[0].Name != GateBranchMergeable {
		r.at("pipelines", pipeline, i, "gates")("deploy takes the gates [%s] and no other: nothing lands without it, the repository's test runs "+
			"on what will land, and every other gate belongs to an earlier stage", GateBranchMergeable)
	}
	stage.Method = r.choice(raw.Method, MethodFastForward, methods(), "pipelines", pipeline, i, "method")
}

func (r *resolver) work(pipeline string, i int, raw stageYAML, stage *Stage) {
	if raw.Method != "" {
		r.at("pipelines", pipeline, i, "method")("method says how a change lands and belongs to deploy")
	}
	if slices.ContainsFunc(stage.Gates, func(g Gate) bool { return g.Name == GateBranchMergeable }) {
		r.at("pipelines", pipeline, i, "gates")("the gate %s belongs to deploy", GateBranchMergeable)
	}
	if raw.Agent == "" {
		if raw.Prompt != "" {
			r.at("pipelines", pipeline, i, "prompt")("stage %s has a prompt and no agent to read it", raw.Stage)
		}
		if len(raw.Gates) == 0 {
			r.at("pipelines", pipeline, i)("stage %s has neither an agent nor a gate, so it would do nothing", raw.Stage)
		}
		return
	}
	if _, ok := r.file.Agent(raw.Agent); !ok {
		var names []string
		for _, agent := range r.file.Agents {
			names = append(names, agent.Name)
		}
		r.at("pipelines", pipeline, i, "agent")("no agent is called %q (defined: %s)", raw.Agent, known(names))
	}
	if raw.Prompt == "" {
		return
	}
	prompt, err := r.loadPrompt(raw.Prompt)
	if err != nil {
		r.at("pipelines", pipeline, i, "prompt")("prompt of stage %s: %v", raw.Stage, err)
	}
	stage.Prompt = prompt
}

// onFail answers where a failed gate sends the task. Said or not, it is a stage with an agent at or before this one:
// without one nothing would change on the way back, and a later one would go round in a circle past the gate.
func (r *resolver) onFail(p Pipeline, i int, stage Stage, said string) string {
	at := r.at("pipelines", p.Name, i, "on_fail")
	stages := append(slices.Clone(p.Stages), stage)
	target := func(name string) int {
		return slices.IndexFunc(stages, func(s Stage) bool { return s.Name == name })
	}
	if said != "" {
		switch j := target(said); {
		case j < 0 && slices.ContainsFunc(r.doc.data.Pipelines[p.Name], func(s stageYAML) bool { return s.Stage == said }):
			at("on_fail: %s comes later than %s; a failed gate sends a task back, never past the gate", said, stage.Name)
		case j < 0:
			at("on_fail: pipeline %s has no stage %q", p.Name, said)
		case stages[j].Agent == "":
			at("on_fail: no agent works in %s, so that nothing would change there", said)
		}
		return said
	}
	corrects := slices.Contains([]string{"review", "testing", StageDeploy}, stage.Name)
	if j := target(stageDevelopment); corrects && j >= 0 && stages[j].Agent != "" {
		return stageDevelopment
	}
	for _, candidate := range slices.Backward(stages) {
		if candidate.Agent != "" {
			return candidate.Name
		}
	}
	return ""
}

func (r *resolver) gates(pipeline string, i int, raw stageYAML) []Gate {
	var gates []Gate
	for j, value := range raw.Gates {
		gate, err := r.gate(value, pipeline, i, j)
		if err != nil {
			r.at("pipelines", pipeline, i, "gates", j)("%v", err)
			continue
		}
		if slices.Contains(gates, gate) {
			r.at("pipelines", pipeline, i, "gates", j)("gate %s is there twice", gate.Name)
		}
		gates = append(gates, gate)
	}
	return gates
}

func (r *resolver) gate(value any, pipeline string, i, j int) (Gate, error) {
	switch v := value.(type) {
	case string:
		if !slices.Contains(gateNames(), v) {
			return Gate{}, fmt.Errorf("gate %q isn't known; allowed: %s, or {command: …}", v, known(gateNames()))
		}
		return Gate{Name: v}, nil
	case map[string]any:
		command, ok := v[GateCommand].(string)
		timeout, isText := v["timeout"].(string)
		_, timed := v["timeout"]
		extra := len(v) - 1
		if timed {
			extra--
		}
		if !ok || strings.TrimSpace(command) == "" || extra != 0 || timed && !isText {
			return Gate{}, fmt.Errorf("a gate is a name (%s) or {command: a line for sh, timeout: 10m}", known(gateNames()))
		}
		return Gate{Name: GateCommand, Command: command, Timeout: r.duration(timeout, "pipelines", pipeline, i, "gates", j, "timeout")}, nil
	}
	return Gate{}, fmt.Errorf("a gate is a name (%s) or {command: a line for sh}", known(gateNames()))
}
