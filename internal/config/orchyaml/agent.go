package orchyaml

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"orch/internal/config"
)

// Presets: the agent programs that orch knows how to start, and PresetCommand for every other.
const (
	PresetAider    = "aider"
	PresetClaude   = "claude"
	PresetCodex    = "codex"
	PresetCommand  = "command"
	PresetGemini   = "gemini"
	PresetOpenCode = "opencode"
)

// Unlimited is a time limit that is left out on purpose; zero is one that nothing was said of.
const Unlimited time.Duration = -1

// Agent is one way to run an agent program.
type Agent struct {
	Name    string
	Preset  string
	Command Command // for other presets than PresetCommand: Argv is what to start in place of the usual program; may be empty
	Model   string
	Args    []string // that follow the preset's own
	// MaxTurns, MaxCostUSD and MaxTokens bound a run, MaxCostUSDDay all its runs of a day; zero and nil are no bounds.
	MaxTurns      int
	MaxCostUSD    *float64
	MaxTokens     *int64
	MaxCostUSDDay *float64
	Timeout       time.Duration
	// StallTimeout is the longest silence, ToolStallTimeout the longest while the agent waits for a tool. Zero is the
	// preset's own, Unlimited none.
	StallTimeout     time.Duration
	ToolStallTimeout time.Duration
	Fallback         string            // the agent that takes over while this one is paused; empty = none
	Env              []string          // names of variables that are passed on
	Set              map[string]string // variables with their values
	Plain            []string          // names of those of Env and Set whose values are no secrets
	Home             []Seed            // files that its HOME begins with
}

// Command is what an agent runs: Shell is a line for `sh -c`, Argv a program with its arguments. One of them is set.
type Command struct {
	Shell string
	Argv  []string
}

// Seed is a file that is copied into an agent's HOME.
type Seed struct {
	From string // absolute
	To   string // relative to HOME
}

// can is what may be asked of a preset.
type can struct {
	own   bool // its command is all that there is to it
	turns bool
	tools bool // its output tells when a tool works
}

func presets() map[string]can {
	return map[string]can{
		PresetAider: {}, PresetClaude: {turns: true, tools: true}, PresetCodex: {tools: true}, PresetCommand: {own: true},
		PresetGemini: {tools: true}, PresetOpenCode: {},
	}
}

// Agent finds an agent by name.
func (f *File) Agent(name string) (Agent, bool) {
	i := slices.IndexFunc(f.Agents, func(a Agent) bool { return a.Name == name })
	if i < 0 {
		return Agent{}, false
	}
	return f.Agents[i], true
}

func (r *resolver) agents() {
	for _, name := range slices.Sorted(maps.Keys(r.doc.data.Agents)) {
		if !config.ValidName(name) {
			r.at("agents", name)("agent %q: %s", name, config.NameRule)
		}
		r.file.Agents = append(r.file.Agents, r.agent(name, r.doc.data.Agents[name]))
	}
	for _, agent := range r.file.Agents {
		r.fallbacks(agent)
	}
}

func (r *resolver) agent(name string, raw agentYAML) Agent {
	words := slices.Collect(maps.Keys(presets()))
	if raw.Preset == "" {
		r.at("agents", name)("agent %s has no preset; allowed: %s", name, known(words))
	}
	agent := Agent{
		Name:             name,
		Preset:           r.choice(raw.Preset, "", words, "agents", name, "preset"),
		Model:            raw.Model,
		Args:             r.args(raw.Args, name),
		MaxCostUSD:       r.amount(raw.MaxCostUSD, r.file.Budgets.Run.MaxCostUSD, "agents", name, "max_cost_usd"),
		MaxTokens:        r.tokens(raw.MaxTokens, r.file.Budgets.Run.MaxTokens, "agents", name, "max_tokens"),
		MaxCostUSDDay:    r.amount(raw.MaxCostUSDDay, nil, "agents", name, "max_cost_usd_day"),
		Timeout:          r.duration(raw.Timeout, "agents", name, "timeout"),
		StallTimeout:     r.limit(raw.StallTimeout, "agents", name, "stall_timeout"),
		ToolStallTimeout: r.limit(raw.ToolStallTimeout, "agents", name, "tool_stall_timeout"),
		Fallback:         raw.Fallback,
		Env:              raw.Env,
		Set:              raw.Set,
		Plain:            raw.Plain,
		Home:             r.home(raw.Home, name),
	}
	if turns := r.count(raw.MaxTurns, nil, "agents", name, "max_turns"); turns != nil {
		agent.MaxTurns = *turns
	}
	if agent.Timeout == 0 {
		agent.Timeout = defaultTimeout
	}
	if able, known := presets()[raw.Preset]; known {
		agent.Command = r.command(raw.Command, agent, able)
		r.abilities(agent, able)
	}
	r.variables(agent)
	return agent
}

// limit reads the time limit of a silence.
func (r *resolver) limit(text string, path ...any) time.Duration {
	if text == NoLimit {
		return Unlimited
	}
	return r.duration(text, path...)
}

func (r *resolver) args(raw []any, agent string) []string {
	args := words(raw)
	if len(args) != len(raw) {
		r.at("agents", agent, "args")("agent %s: args is a list of strings (quote numbers)", agent)
	}
	return args
}

// words answers the strings of a list.
func words(raw []any) []string {
	var texts []string
	for _, word := range raw {
		if text, ok := word.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

func (r *resolver) command(raw any, agent Agent, able can) Command {
	at := r.at("agents", agent.Name, "command")
	switch value := raw.(type) {
	case nil:
		if !able.own {
			return Command{}
		}
	case string:
		switch {
		case strings.TrimSpace(value) == "":
		case able.own:
			return Command{Shell: value}
		case !strings.ContainsAny(value, " \t\n"):
			return Command{Argv: []string{value}}
		default:
			at("agent %s has preset %s and a command: that names another program to start, as one word or as a list; "+
				"what else it is to be told belongs into args", agent.Name, agent.Preset)
			return Command{}
		}
	case []any:
		if argv := words(value); len(argv) > 0 && len(argv) == len(value) && argv[0] != "" {
			return Command{Argv: argv}
		}
	}
	if able.own {
		at("agent %s needs a command: a line for sh, or a list of strings with the program first (quote numbers)", agent.Name)
	} else {
		at("agent %s: command is the program to start in place of %s: one word, or a list of strings", agent.Name, agent.Preset)
	}
	return Command{}
}

// abilities refuses what would have no effect.
func (r *resolver) abilities(agent Agent, able can) {
	refuse := func(key string, asked bool, why string) {
		if asked {
			r.at("agents", agent.Name, key)("agent %s: preset %s takes no %s%s", agent.Name, agent.Preset, key, why)
		}
	}
	refuse("model", able.own && agent.Model != "", ": it belongs into its command")
	refuse("args", able.own && len(agent.Args) > 0, ": they belong into its command")
	refuse("max_turns", !able.turns && agent.MaxTurns > 0, "")
	refuse("tool_stall_timeout", !able.tools && agent.ToolStallTimeout != 0, ": its output doesn't tell when a tool works")
}

// variables keeps an agent's environment free of orch's own settings, which hold its secrets.
func (r *resolver) variables(agent Agent) {
	pattern := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	check := func(name string, path ...any) {
		switch {
		case !pattern.MatchString(name):
			r.at(path...)("agent %s: %q is no name of an environment variable", agent.Name, name)
		case strings.HasPrefix(name, config.Prefix):
			r.at(path...)("agent %s: %s is orch's own; an agent doesn't get it", agent.Name, name)
		}
	}
	for i, name := range agent.Env {
		check(name, "agents", agent.Name, "env", i)
		if name == "HOME" {
			r.at("agents", agent.Name, "env", i)("agent %s: HOME is its own here; list the files it needs under home", agent.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(agent.Set)) {
		check(name, "agents", agent.Name, "set", name)
		if strings.ContainsRune(agent.Set[name], 0) {
			r.at("agents", agent.Name, "set", name)("agent %s: the value of %s holds a NUL", agent.Name, name)
		}
	}
	for i, name := range agent.Plain {
		if _, set := agent.Set[name]; !set && !slices.Contains(agent.Env, name) {
			r.at("agents", agent.Name, "plain", i)("agent %s: plain has %q, which neither env nor set has", agent.Name, name)
		}
	}
}

func (r *resolver) home(raw []seedYAML, agent string) []Seed {
	var seeds []Seed
	for i, entry := range raw {
		at := r.at("agents", agent, "home", i)
		to := filepath.Clean(entry.To)
		from, err := r.source(entry.From)
		switch {
		case err != nil:
			at("agent %s: home: %v", agent, err)
		case entry.To == "" || to == "." || !filepath.IsLocal(to):
			at("agent %s: home: to %q isn't a path within its HOME, such as .config/tool.json", agent, entry.To)
		case slices.ContainsFunc(seeds, func(s Seed) bool { return s.To == to }):
			at("agent %s: home: %s is there twice", agent, to)
		}
		seeds = append(seeds, Seed{From: from, To: to})
	}
	return seeds
}

// source is a path on this machine; ~ is the home directory of whoever runs orch.
func (r *resolver) source(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("from is missing: the file to copy")
	case strings.HasPrefix(path, "~/"):
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("from %q: there is no home directory here; write the path out", path)
		}
		return filepath.Join(home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", fmt.Errorf("from %q: write the path out", path)
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(r.dir, path), nil
}

// fallbacks follows who takes over from whom.
func (r *resolver) fallbacks(agent Agent) {
	at := r.at("agents", agent.Name, "fallback")
	way := []string{agent.Name}
	for next := agent.Fallback; next != ""; {
		taker, defined := r.file.Agent(next)
		if !defined {
			if len(way) == 1 {
				var names []string
				for _, other := range r.file.Agents {
					names = append(names, other.Name)
				}
				at("agent %s: fallback %q isn't defined; defined: %s", agent.Name, next, known(names))
			}
			return
		}
		way = append(way, next)
		if next == agent.Name {
			at("agent %s: the fallbacks go round in a circle: %s", agent.Name, strings.Join(way, " → "))
			return
		}
		if slices.Contains(way[:len(way)-1], next) {
			return // a circle further on, told of there
		}
		next = taker.Fallback
	}
}

// FallbacksOf answers the names of those who take over from an agent, in their order.
func (f *File) FallbacksOf(name string) []string {
	var names []string
	for agent, known := f.Agent(name); known && agent.Fallback != ""; agent, known = f.Agent(agent.Fallback) {
		if agent.Fallback == name || slices.Contains(names, agent.Fallback) {
			break
		}
		names = append(names, agent.Fallback)
	}
	return names
}
