package orchyaml_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"orch/internal/config/orchyaml"
)

const money = `
budgets:
  run: {max_cost_usd: 2.5, max_tokens: 20_000_000}
  task: {max_cost_usd: 20, max_runs: 12}
  day: {max_cost_usd: none, max_runs: 100}
agents:
  coder:
    preset: claude
    model: opus
    args: [--effort, high]
    max_turns: 200
    max_cost_usd: 4
    max_cost_usd_day: 15
    stall_timeout: none
    tool_stall_timeout: 40m
    fallback: spare
    env: [ANTHROPIC_API_KEY, LEVEL]
    plain: [LEVEL]
    home:
      - {from: ~/.claude/.credentials.json, to: .claude/.credentials.json}
      - {from: seeds/tool.json, to: ./.config/tool.json}
      - {from: /etc/hosts, to: hosts}
  spare: {preset: codex, command: /opt/codex, max_cost_usd: none, fallback: last}
  last: {preset: opencode, command: [npx, opencode]}
`

func TestAgentsOfKnownPrograms(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	path := write(t, "orch.yaml", money)
	file, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []orchyaml.Agent{
		{
			Name: "coder", Preset: "claude", Model: "opus", Args: []string{"--effort", "high"}, MaxTurns: 200, MaxCostUSD: new(4.0),
			MaxTokens: new(int64(20_000_000)), MaxCostUSDDay: new(15.0), Timeout: time.Hour, StallTimeout: orchyaml.Unlimited,
			ToolStallTimeout: 40 * time.Minute, Fallback: "spare", Env: []string{"ANTHROPIC_API_KEY", "LEVEL"}, Plain: []string{"LEVEL"},
			Home: []orchyaml.Seed{
				{From: "/home/me/.claude/.credentials.json", To: ".claude/.credentials.json"},
				{From: filepath.Join(filepath.Dir(path), "seeds", "tool.json"), To: ".config/tool.json"},
				{From: "/etc/hosts", To: "hosts"},
			},
		},
		{
			Name: "last", Preset: "opencode", Command: orchyaml.Command{Argv: []string{"npx", "opencode"}}, MaxCostUSD: new(2.5),
			MaxTokens: new(int64(20_000_000)), Timeout: time.Hour,
		},
		{
			Name: "spare", Preset: "codex", Command: orchyaml.Command{Argv: []string{"/opt/codex"}}, MaxTokens: new(int64(20_000_000)),
			Timeout: time.Hour, Fallback: "last",
		},
	}
	if !reflect.DeepEqual(file.Agents, want) {
		t.Errorf("agents %+v", file.Agents)
	}
	budgets := orchyaml.Budgets{
		Run:  orchyaml.Budget{MaxCostUSD: new(2.5), MaxTokens: new(int64(20_000_000))},
		Task: orchyaml.Budget{MaxCostUSD: new(20.0), MaxRuns: new(12)},
		Day:  orchyaml.Budget{MaxRuns: new(100)},
	}
	if !reflect.DeepEqual(file.Budgets, budgets) {
		t.Errorf("budgets %+v", file.Budgets)
	}
	if got := file.FallbacksOf("coder"); !slices.Equal(got, []string{"spare", "last"}) || file.FallbacksOf("last") != nil || file.FallbacksOf("nobody") != nil {
		t.Errorf("fallbacks %q", got)
	}
}

func TestBudgetsThatHoldUnlessTheFileSaysOtherwise(t *testing.T) {
	t.Parallel()
	shipped := orchyaml.Budgets{
		Run: orchyaml.Budget{MaxCostUSD: new(5.0)}, Task: orchyaml.Budget{MaxRuns: new(20)}, Day: orchyaml.Budget{MaxCostUSD: new(25.0)},
	}
	unbounded := orchyaml.Budgets{Task: orchyaml.Budget{MaxRuns: new(20)}}
	for content, want := range map[string]orchyaml.Budgets{
		"": shipped, "budgets:\n": shipped, "budgets: {day: {}, run:}\n": shipped,
		"budgets: {run: {max_cost_usd: none}, day: {max_cost_usd: none, max_tokens: none}}\n": unbounded,
	} {
		file, err := parseFile("orch.yaml", []byte(content))
		if err != nil || !reflect.DeepEqual(file.Budgets, want) {
			t.Errorf("%q: %+v, %v", content, file, err)
		}
	}
}

func TestRefusedAgents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ content, want string }{
		"fallback":           {"agents:\n  coder: {preset: claude, fallback: spear}\n  spare: {preset: codex}\n", `f.yaml:2: agent coder: fallback "spear" isn't defined; defined: coder, spare`},
		"fallback in circle": {"agents:\n  coder: {preset: claude, fallback: spare}\n  spare: {preset: codex, fallback: coder}\n", "f.yaml:2: agent coder: the fallbacks go round in a circle: coder → spare → coder"},
		"own fallback":       {"agents:\n  coder: {preset: claude, fallback: coder}\n", "circle: coder → coder"},
		"turns":              {"agents:\n  a:\n    preset: aider\n    max_turns: 5\n", "f.yaml:4: agent a: preset aider takes no max_turns"},
		"tools":              {"agents:\n  a: {preset: opencode, tool_stall_timeout: 5m}\n", "preset opencode takes no tool_stall_timeout: its output doesn't tell"},
		"model of a command": {"agents:\n  a: {preset: command, command: x, model: big}\n", "preset command takes no model: it belongs into its command"},
		"args of a command":  {"agents:\n  a: {preset: command, command: x, args: [y]}\n", "preset command takes no args"},
		"arguments":          {"agents:\n  a: {preset: claude, args: [--n, 5]}\n", "f.yaml:2: agent a: args is a list of strings (quote numbers)"},
		"line for a program": {"agents:\n  a: {preset: claude, command: claude --fast}\n", "agent a has preset claude and a command: that names another program to start"},
		"mapping as program": {"agents:\n  a: {preset: claude, command: {x: y}}\n", "command is the program to start in place of claude"},
		"no dollars":         {"budgets:\n  day:\n    max_cost_usd: x\nagents: {}\n", `f.yaml:3: budgets.day.max_cost_usd: "x" is no amount above zero, such as 2.50, and not none`},
		"zero dollars":       {"budgets: {run: {max_cost_usd: 0}}\n", `budgets.run.max_cost_usd: "0" is no amount`},
		"negative dollars":   {"agents:\n  a: {preset: claude, max_cost_usd_day: -1}\n", `agents.a.max_cost_usd_day: "-1" is no amount`},
		"endless dollars":    {"budgets: {run: {max_cost_usd: .inf}}\n", "budgets.run.max_cost_usd: "},
		"no number":          {"budgets: {run: {max_cost_usd: .nan}}\n", "budgets.run.max_cost_usd: "},
		"list of dollars":    {"budgets: {run: {max_cost_usd: [1]}}\n", "budgets.run.max_cost_usd: this is no amount"},
		"half a token":       {"budgets: {run: {max_tokens: 0.5}}\n", `budgets.run.max_tokens: "0.5" is no whole number above zero, and not none`},
		"too many runs":      {"budgets: {task: {max_runs: 3000000000}}\n", "budgets.task.max_runs: "},
		"runs of a run":      {"budgets: {run: {max_runs: 3}}\n", "budgets.run takes no max_runs"},
		"turns in words":     {"agents:\n  a: {preset: claude, max_turns: many}\n", `agents.a.max_turns: "many" is no whole number`},
		"budget key":         {"budgets: {week: {}}\n", `unknown field "week"`},
		"HOME":               {"agents:\n  a: {preset: claude, env: [HOME]}\n", "f.yaml:2: agent a: HOME is its own here; list the files it needs under home"},
		"plain":              {"agents:\n  a: {preset: claude, env: [X], plain: [Y]}\n", `agent a: plain has "Y", which neither env nor set has`},
		"seed outside":       {"agents:\n  a: {preset: claude, home: [{from: /x, to: ../y}]}\n", `agent a: home: to "../y" isn't a path within its HOME`},
		"absolute seed":      {"agents:\n  a: {preset: claude, home: [{from: /x, to: /y}]}\n", "isn't a path within its HOME"},
		"HOME as a seed":     {"agents:\n  a: {preset: claude, home: [{from: /x, to: .}]}\n", "isn't a path within its HOME"},
		"seed from nowhere":  {"agents:\n  a: {preset: claude, home: [{to: y}]}\n", "from is missing"},
		"somebody's seed":    {"agents:\n  a: {preset: claude, home: [{from: ~bob/x, to: y}]}\n", "write the path out"},
		"seed twice":         {"agents:\n  a: {preset: claude, home: [{from: /x, to: y}, {from: /z, to: ./y}]}\n", "home: y is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFile("f.yaml", []byte(test.content))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q in %v", test.want, err)
			}
		})
	}
}
