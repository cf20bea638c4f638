package environ

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"orch/internal/process"
)

const (
	// ownPrefix begins the names of orch's own settings, secrets among them. They are never inherited.
	ownPrefix = "ORCH_"
	// promptVariable tells a program where its standard input can also be read.
	promptVariable = "ORCH_PROMPT_FILE"
	// minSecret is the length below which replacing a value would hide more than it protects.
	minSecret = 6
	// cachesDir is beside the homes; no agent can be called that.
	cachesDir = ".caches"
)

// ErrBadEntry means that an entry of an environment has no name, or can't be passed on.
var ErrBadEntry = errors.New("bad environment entry")

// Request says for whom the environment is.
type Request struct {
	// Inherited is what variables are taken from; nil is this process's environment.
	Inherited []string
	// Names are those to take beyond the few that everybody gets.
	Names []string
	// Set holds "K=V" entries, which win over all others.
	Set []string
	// Plain names variables of Names and Set whose values are no secrets.
	Plain []string
	// HomesDir holds the homes of agents, and the shared caches. Without it HOME is TmpDir.
	HomesDir string
	// Agent is whose HOME it is; empty is a HOME of this run's own.
	Agent string
	// Cache names what caches a run with a HOME of its own shares; empty is none.
	Cache string
	// TmpDir is TMPDIR, a directory of the run's own.
	TmpDir string
	// PromptFile is where the prompt lies; empty is nowhere.
	PromptFile string
}

// Environment is what a program starts with.
type Environment struct {
	// Vars is sorted.
	Vars    []string
	Secrets []process.Secret
	// own is a HOME that has to be made for the run, agents the one that stays, caches what is shared.
	own, agents string
	caches      []string
}

// Build makes the environment; it touches nothing. Its error wraps ErrBadEntry.
func Build(r Request) (Environment, error) {
	var e Environment
	env := r.inherit()
	env["TMPDIR"] = r.TmpDir
	switch {
	case env["HOME"] != "": // asked for by name, by somebody at his own machine
	case r.HomesDir == "":
		env["HOME"] = r.TmpDir
	case r.Agent != "":
		if !filepath.IsLocal(r.Agent) || strings.HasPrefix(r.Agent, ".") {
			return Environment{}, fmt.Errorf("%w: %q can't be the name of an agent's HOME", ErrBadEntry, r.Agent)
		}
		e.agents = filepath.Join(r.HomesDir, r.Agent)
		env["HOME"] = e.agents
	default:
		e.own = filepath.Join(r.TmpDir, "home")
		env["HOME"] = e.own
		for name, dir := range r.shared() {
			e.caches = append(e.caches, dir)
			env[name] = dir
		}
	}
	if r.PromptFile != "" {
		env[promptVariable] = r.PromptFile
	}
	for _, entry := range r.Set {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(entry, 0) {
			return Environment{}, fmt.Errorf("%w: no name, or a zero byte", ErrBadEntry)
		}
		env[name] = value
	}
	for name, value := range env {
		e.Vars = append(e.Vars, name+"="+value)
	}
	slices.Sort(e.Vars)
	e.Secrets = r.secrets(env)
	return e, nil
}

func (r Request) inherit() map[string]string {
	inherited := r.Inherited
	if inherited == nil {
		inherited = os.Environ()
	}
	allowed := append([]string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"}, r.Names...)
	env := map[string]string{}
	for _, entry := range inherited {
		name, value, _ := strings.Cut(entry, "=")
		if slices.Contains(allowed, name) && !strings.HasPrefix(name, ownPrefix) {
			env[name] = value
		}
	}
	return env
}

// shared points the usual tools, which look below HOME, to caches that outlive it.
func (r Request) shared() map[string]string {
	if r.Cache == "" || !filepath.IsLocal(r.Cache) {
		return nil
	}
	dir := filepath.Join(r.HomesDir, cachesDir, r.Cache)
	return map[string]string{
		"XDG_CACHE_HOME": filepath.Join(dir, "xdg"), "GOMODCACHE": filepath.Join(dir, "go-mod"), "npm_config_cache": filepath.Join(dir, "npm"),
	}
}

// secrets are the values that the entry names or sets. What orch tells a program begins with its own prefix.
func (r Request) secrets(env map[string]string) []process.Secret {
	names := slices.Clone(r.Names)
	for _, entry := range r.Set {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	var list []process.Secret
	for _, name := range slices.Compact(names) {
		value := env[name]
		if len(value) < minSecret || name == "HOME" || slices.Contains(r.Plain, name) || strings.HasPrefix(name, ownPrefix) {
			continue
		}
		list = append(list, process.Secret{Name: name, Value: value})
	}
	return list
}

// Prepare makes what outlives the run, and copies seeds into an agent's HOME. It may be done for a run that never begins.
func (e Environment) Prepare(seeds []Seed) error {
	for _, dir := range append([]string{e.agents}, e.caches...) {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	return e.sow(seeds)
}

// Begin makes what is the run's own. Its temporary directory is there.
func (e Environment) Begin() error { return makeDir(e.own) }

func makeDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	return nil
}

// Ports are the variables for a range of ports.
func Ports(first, count int) []string {
	return []string{"ORCH_PORT=" + strconv.Itoa(first), "ORCH_PORT_COUNT=" + strconv.Itoa(count)}
}

// Names are the names of variables.
func Names(vars []string) []string {
	list := make([]string, len(vars))
	for i, entry := range vars {
		list[i], _, _ = strings.Cut(entry, "=")
	}
	return list
}

// Get finds a variable.
func Get(vars []string, name string) (string, bool) {
	for _, entry := range vars {
		if k, value, _ := strings.Cut(entry, "="); k == name {
			return value, true
		}
	}
	return "", false
}
