package orchyaml

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"orch/internal/config"
)

func known(words []string) string {
	words = slices.Clone(words)
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// resolver turns a document into a File and collects what is wrong with it.
type resolver struct {
	doc      *document
	dir      string // that relative paths start from
	check    PromptCheck
	file     *File
	problems []error
}

// at gathers a problem's place; its result is called with the message.
func (r *resolver) at(path ...any) func(format string, args ...any) {
	return func(format string, args ...any) {
		r.problems = append(r.problems, &ProblemError{File: r.doc.path, Line: r.doc.line(path...), Message: fmt.Sprintf(format, args...)})
	}
}

func (r *resolver) duration(text string, path ...any) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.at(path...)("%s: %q is no duration above zero, such as 90s, 45m or 2h", path[len(path)-1], text)
		return 0
	}
	return d
}

func (r *resolver) choice(value, fallback string, allowed []string, path ...any) string {
	if value == "" {
		return fallback
	}
	if !slices.Contains(allowed, value) {
		r.at(path...)("%s: %q isn't known here; allowed: %s", path[len(path)-1], value, known(allowed))
	}
	return value
}

func (r *resolver) agents() {
	for _, name := range slices.Sorted(maps.Keys(r.doc.data.Agents)) {
		raw := r.doc.data.Agents[name]
		at := []any{"agents", name}
		if !config.ValidName(name) {
			r.at(at...)("agent %q: %s", name, config.NameRule)
		}
		if raw.Preset == "" {
			r.at(at...)("agent %s has no preset; allowed: %s", name, PresetCommand)
		}
		agent := Agent{
			Name:         name,
			Preset:       r.choice(raw.Preset, "", []string{PresetCommand}, "agents", name, "preset"),
			Command:      r.command(raw.Command, name),
			Timeout:      r.duration(raw.Timeout, "agents", name, "timeout"),
			StallTimeout: r.duration(raw.StallTimeout, "agents", name, "stall_timeout"),
			Env:          raw.Env,
			Set:          raw.Set,
		}
		if agent.Timeout == 0 {
			agent.Timeout = defaultTimeout
		}
		r.variables(agent)
		r.file.Agents = append(r.file.Agents, agent)
	}
}

func (r *resolver) command(raw any, agent string) Command {
	switch value := raw.(type) {
	case string:
		if strings.TrimSpace(value) != "" {
			return Command{Shell: value}
		}
	case []any:
		argv := make([]string, 0, len(value))
		for _, word := range value {
			if text, ok := word.(string); ok {
				argv = append(argv, text)
			}
		}
		if len(argv) > 0 && len(argv) == len(value) && argv[0] != "" {
			return Command{Argv: argv}
		}
	}
	r.at("agents", agent, "command")("agent %s needs a command: a line for sh, or a list of strings with the program first (quote numbers)", agent)
	return Command{}
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
	}
	for _, name := range slices.Sorted(maps.Keys(agent.Set)) {
		check(name, "agents", agent.Name, "set", name)
		if strings.ContainsRune(agent.Set[name], 0) {
			r.at("agents", agent.Name, "set", name)("agent %s: the value of %s holds a NUL", agent.Name, name)
		}
	}
}

func (r *resolver) repos() {
	lines, places := map[string]int{}, map[string]string{}
	for i, raw := range r.doc.data.Repos {
		if !config.ValidName(raw.Name) {
			r.at("repos", i, "name")("repository %d needs a name: %s; it says %q", i+1, config.NameRule, raw.Name)
			continue
		}
		if line, twice := lines[raw.Name]; twice {
			r.at("repos", i, "name")("repository %s was defined on line %d already", raw.Name, line)
			continue
		}
		lines[raw.Name] = r.doc.line("repos", i, "name")
		repo := r.repo(i, raw)
		place := repo.Path + "\x00" + repo.Base
		if other, twice := places[place]; twice && repo.Path != "" {
			r.at("repos", i, "path")("repositories %s and %s are the same: branch %s of %s", other, repo.Name, repo.Base, repo.Path)
		}
		places[place] = repo.Name
		r.file.Repos = append(r.file.Repos, repo)
	}
}

func (r *resolver) repo(i int, raw repoYAML) Repo {
	repo := Repo{
		Name:     raw.Name,
		Forge:    r.choice(raw.Forge, ForgeLocal, []string{ForgeLocal}, "repos", i, "forge"),
		Path:     r.repoPath(i, raw),
		Base:     raw.Base,
		Pipeline: raw.Pipeline,
		Setup:    raw.Setup,
		Test:     raw.Test,
		Land:     r.choice(raw.Land, LandAuto, []string{LandAuto, LandManual}, "repos", i, "land"),
	}
	if repo.Base == "" {
		repo.Base = defaultBase
	}
	if repo.Pipeline == "" {
		repo.Pipeline = DefaultPipeline
	}
	switch strings.TrimSpace(raw.Test) {
	case "":
		r.at("repos", i, "test")("repository %s has no test: give the command that decides whether a change may land, or say `test: %s`", raw.Name, TestNone)
		return repo
	case TestNone:
		repo.Test = ""
	}
	// A pipeline that is broken itself has been reported where it stands.
	if _, defined := r.doc.data.Pipelines[repo.Pipeline]; defined {
		if _, resolved := r.file.pipelines[repo.Pipeline]; !resolved {
			return repo
		}
	}
	if _, err := r.file.ResolvePipeline(repo, repo.Pipeline); err != nil {
		r.at("repos", i, "pipeline")("repository %s: %v", raw.Name, err)
	}
	return repo
}

func (r *resolver) repoPath(i int, raw repoYAML) string {
	switch {
	case raw.Path == "":
		r.at("repos", i, "path")("repository %s needs a path: a bare or normal git repository on this machine", raw.Name)
		return ""
	case strings.HasPrefix(raw.Path, "~"):
		r.at("repos", i, "path")("repository %s: ~ has no meaning here; write the path out", raw.Name)
		return ""
	case strings.Contains(raw.Path, "://"):
		r.at("repos", i, "path")("repository %s: path takes a directory on this machine, not a URL", raw.Name)
		return ""
	case filepath.IsAbs(raw.Path):
		return filepath.Clean(raw.Path)
	}
	return filepath.Join(r.dir, raw.Path)
}
