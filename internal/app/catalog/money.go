package catalog

import (
	"orch/internal/agent/preset"
	"orch/internal/agent/usage"
	"orch/internal/config/orchyaml"
)

// LimitsOf is what bounds the next run of one of the plan's agents: its own entry's word is above that of the budgets.
func (p Plan) LimitsOf(agent string) usage.Limits {
	limits := p.Limits
	entry, known := p.Agents[agent]
	if !known {
		return limits
	}
	limits.Run = usage.Limit{CostUSD: entry.MaxCostUSD, Tokens: entry.MaxTokens}
	limits.Agent, limits.AgentName = usage.Limit{CostUSD: entry.MaxCostUSDDay}, agent
	return limits
}

func limitsOf(b orchyaml.Budgets) usage.Limits {
	return usage.Limits{Run: limitOf(b.Run), Task: limitOf(b.Task), Day: limitOf(b.Day)}
}

func limitOf(b orchyaml.Budget) usage.Limit {
	return usage.Limit{CostUSD: b.MaxCostUSD, Tokens: b.MaxTokens, Runs: b.MaxRuns}
}

// enlist puts an agent of the file and those who take over from it into the plan, with their time limits as they hold.
func (p Plan) enlist(file *orchyaml.File, name string) {
	for _, name := range append([]string{name}, file.FallbacksOf(name)...) {
		if entry, known := file.Agent(name); known {
			p.Agents[name] = inForce(entry)
		}
	}
}

// inForce gives an entry the time limits of its preset where it names none; zero is no limit then.
func inForce(entry orchyaml.Agent) orchyaml.Agent {
	own, _ := preset.Of(entry.Preset)
	stall, tool := entry.StallTimeout, entry.ToolStallTimeout
	if stall == 0 {
		stall = own.Stall
	}
	switch {
	case own.ToolStall == 0:
		tool = 0 // its output doesn't tell
	case tool == orchyaml.Unlimited, tool == 0 && stall == orchyaml.Unlimited:
		tool = entry.Timeout // zero would be the limit of any silence
	case tool == 0:
		tool = max(own.ToolStall, stall)
	}
	entry.StallTimeout, entry.ToolStallTimeout = max(stall, 0), tool
	return entry
}
