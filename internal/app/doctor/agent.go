package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/agent/preset"
	"orch/internal/config"
	"orch/internal/config/orchyaml"
)

// examineAgent says whether an agent's program is there, and what it will lack: a variable, a file, a login, a way to
// know what it costs.
func examineAgent(cfg *config.Config, agent orchyaml.Agent) []Finding {
	found := []Finding{examineProgram(cfg, agent)}
	warn := func(detail, remedy string) {
		found = append(found, Finding{"agent " + agent.Name, Warning, detail, remedy})
	}
	for _, name := range agent.Env {
		if _, set := os.LookupEnv(name); !set {
			warn("its env names "+name+", which isn't set here", "set it where orch is started, or take it out")
		}
	}
	for _, seed := range agent.Home {
		if info, err := os.Stat(seed.From); err != nil || !info.Mode().IsRegular() {
			warn("its home begins with "+seed.From+", which is no file that can be read", "correct agents."+agent.Name+".home")
		}
	}
	own, _ := preset.Of(agent.Preset)
	if !loggedIn(cfg, agent, own) {
		warn("nothing is there that would let it log in: neither a variable ("+strings.Join(own.Keys, ", ")+") nor a file in its HOME ("+strings.Join(own.Home, ", ")+")",
			fmt.Sprintf("pass a key on with env: [%s], or a login with home: [{from: ~/%s, to: %s}]", own.Keys[0], own.Home[0], own.Home[0]))
	}
	if agent.Preset != orchyaml.PresetCommand && !own.Priced && agent.MaxTokens == nil {
		warn(agent.Preset+" doesn't say what a run costs: its runs don't count in USD", "give it max_tokens")
	}
	return found
}

// loggedIn says whether an agent has one of the things that its program logs in with, as far as that can be told.
func loggedIn(cfg *config.Config, agent orchyaml.Agent, own preset.Preset) bool {
	if len(own.Keys) == 0 || len(own.Home) == 0 {
		return true
	}
	has := func(name string) bool {
		_, set := agent.Set[name]
		return set || slices.Contains(agent.Env, name)
	}
	there := func(file string) bool {
		_, err := os.Stat(filepath.Join(cfg.Data.Root, "homes", agent.Name, file))
		return err == nil || slices.ContainsFunc(agent.Home, func(s orchyaml.Seed) bool { return s.To == file })
	}
	return slices.ContainsFunc(own.Keys, has) || slices.ContainsFunc(own.Home, there)
}

func examineProgram(cfg *config.Config, agent orchyaml.Agent) Finding {
	name := "agent " + agent.Name
	if agent.Placeholder() {
		return Finding{name, Failed, "no agent program is set", "edit agents." + agent.Name + ".command in " + cfg.Data.File}
	}
	word, _, _ := strings.Cut(strings.TrimSpace(agent.Command.Shell), " ")
	if len(agent.Command.Argv) > 0 {
		word = agent.Command.Argv[0]
	}
	if own, _ := preset.Of(agent.Preset); word == "" {
		word = own.Program
	}
	if len(agent.Command.Argv) == 0 && strings.ContainsAny(word, "\"'$`=;&|<>(){}") {
		return Finding{Name: name, Status: OK, Detail: "a shell line, not looked into"}
	}
	path, err := exec.LookPath(word)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return Finding{name, Failed, fmt.Sprintf("there is no program %q", word), "install it, or correct agents." + agent.Name + ".command"}
	}
	if _, err := os.Stat(path); err != nil {
		path = word
	}
	return Finding{Name: name, Status: OK, Detail: path}
}
