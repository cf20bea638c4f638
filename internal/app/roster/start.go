package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"orch/internal/agent"
	"orch/internal/agent/environ"
	"orch/internal/agent/preset"
	"orch/internal/config/orchyaml"
	"orch/internal/queue"
	"orch/internal/stage"
	"orch/internal/stage/prompt"
	"orch/internal/task"
)

// ready makes the workspace ready, and the command of an agent that begins or goes on.
func (r *Roster) ready(ctx context.Context, l *queue.Lease, setup string, entry orchyaml.Agent, run stage.AgentRun) (agent.Program, error) {
	kind, known := preset.Of(entry.Preset)
	if !known {
		return agent.Program{}, unusable(entry, run, errNoPreset)
	}
	written := presetEntry(entry)
	start := preset.Start{Prompt: run.Prompt, PromptFile: agent.PromptFile}
	if _, err := preset.Build(written, start); err != nil {
		return agent.Program{}, unusable(entry, run, err)
	}
	earlier, err := r.earlier(ctx, entry, written, run)
	if err != nil {
		return agent.Program{}, err
	}
	kept := false
	err = r.cfg.Alone(ctx, l, run.Task.ID, func() error {
		kept, err = run.Prepare(ctx, earlier != nil)
		return err
	})
	if err != nil {
		return agent.Program{}, err
	}
	prog := agent.Program{
		Agent: entry.Name, Preset: entry.Preset, Format: kind.Format, Dir: run.Dir, Inherit: entry.Env, Plain: entry.Plain,
		Seeds: seeds(entry), Timeout: entry.Timeout, StallTimeout: entry.StallTimeout, ToolStallTimeout: entry.ToolStallTimeout,
	}
	if earlier != nil {
		start.Session, prog.ResumedFrom = *earlier.SessionID, &earlier.ID
		if start.Prompt, err = run.Continue(prompt.Earlier{Outcome: string(*earlier.Outcome), Kept: kept}); err != nil {
			return agent.Program{}, err
		}
	}
	command, err := preset.Build(written, start)
	if err != nil {
		return agent.Program{}, unusable(entry, run, err)
	}
	prog.Argv, prog.Stdin = preset.AfterSetup(setup, command.Argv), command.Stdin
	if len(prog.Stdin) == 0 {
		prog.Stdin = start.Prompt // it is in the prompt's file then too
	}
	prog.Env = environment(entry, command.Env, run)
	return prog, nil
}

// earlier finds the run whose session the agent goes on with; nil when it begins.
func (r *Roster) earlier(ctx context.Context, entry orchyaml.Agent, written preset.Entry, run stage.AgentRun) (*agent.Run, error) {
	if !written.CanResume() {
		return nil, nil //nolint:nilnil // it begins
	}
	found, is, err := r.cfg.Runs.Resumable(ctx, agent.Session{
		TaskID: run.Task.ID, Stage: run.Stage, Round: run.Round, Agent: entry.Name, Preset: entry.Preset,
	})
	if err != nil || !is {
		return nil, err
	}
	if !written.GoesOn(*found.SessionID) {
		r.log.WarnContext(ctx, "session can't be gone on with, the agent begins anew", slog.String("task", run.Task.Key),
			slog.String("agent", entry.Name), slog.String("run_id", found.ID.String()))
		return nil, nil //nolint:nilnil // it begins
	}
	alone, err := r.workedAlone(ctx, entry.Name, found)
	if err != nil || !alone {
		return nil, err
	}
	return &found, nil
}

// workedAlone says that no other agent has worked on the task since: it would find a workspace that it doesn't know.
func (r *Roster) workedAlone(ctx context.Context, name string, since agent.Run) (bool, error) {
	const latest = 20
	runs, err := r.cfg.Runs.Latest(ctx, since.TaskID, latest)
	if err != nil {
		return false, err
	}
	for _, run := range runs {
		switch {
		case run.ID == since.ID:
			return true, nil
		case run.Purpose == agent.PurposeAgent && run.Agent != name:
			return false, nil
		}
	}
	return false, nil
}

func unusable(entry orchyaml.Agent, run stage.AgentRun, err error) error {
	return queue.Terminal("agent_command", fmt.Errorf(
		"agent %q can't be started: %w: correct it in orch.yaml, then `orch task retry %s`", entry.Name, err, run.Task.Key))
}

func presetEntry(entry orchyaml.Agent) preset.Entry {
	return preset.Entry{
		Preset: entry.Preset, Command: preset.Template{Argv: entry.Command.Argv, Shell: entry.Command.Shell}, Model: entry.Model,
		Args: entry.Args, MaxTurns: entry.MaxTurns, MaxCostUSD: entry.MaxCostUSD,
	}
}

func seeds(entry orchyaml.Agent) []environ.Seed {
	list := make([]environ.Seed, 0, len(entry.Home))
	for _, s := range entry.Home {
		list = append(list, environ.Seed{From: s.From, To: s.To})
	}
	return list
}

// environment is what an agent is told beside its prompt. Nothing in it is secret but what its entry sets.
func environment(entry orchyaml.Agent, preset []string, run stage.AgentRun) []string {
	env := slices.Concat(preset, []string{
		"ORCH_TASK=" + run.Task.Key, "ORCH_STAGE=" + run.Stage, "ORCH_ROUND=" + strconv.Itoa(run.Round),
		"ORCH_BRANCH=" + run.Task.Branch, "ORCH_BASE=" + run.Task.BaseBranch,
	})
	for _, name := range slices.Sorted(maps.Keys(entry.Set)) {
		env = append(env, name+"="+entry.Set[name])
	}
	return env
}

// codeOf is why the task was blocked that an event let go on.
func codeOf(event task.Event) string {
	var data struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return ""
	}
	return data.Code
}
