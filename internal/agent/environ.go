package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/process"
)

// ownPrefix begins the names of orch's own settings, secrets among them. They are never inherited.
const ownPrefix = "ORCH_"

// promptVariable tells a program where its standard input can also be read.
const promptVariable = "ORCH_PROMPT_FILE"

// environ is everything that the program gets, but for the mark that the shim adds: the few allowed variables and the
// names asked for, TMPDIR and HOME of its own, and what the request sets. Later entries replace earlier ones.
func (r *Runs) environ(purpose Purpose, prog Program, runDir string) ([]string, error) {
	inherited := r.cfg.Environ
	if inherited == nil {
		inherited = os.Environ()
	}
	allowed := append([]string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"}, prog.Inherit...)
	env := map[string]string{}
	for _, entry := range inherited {
		name, value, _ := strings.Cut(entry, "=")
		if slices.Contains(allowed, name) && !strings.HasPrefix(name, ownPrefix) {
			env[name] = value
		}
	}
	tmp := filepath.Join(runDir, "tmp")
	env["TMPDIR"] = tmp
	if !slices.Contains(prog.Inherit, "HOME") {
		env["HOME"] = tmp
		if r.cfg.HomesDir != "" {
			env["HOME"] = filepath.Join(r.cfg.HomesDir, homeName(purpose, prog.Agent))
		}
	}
	if len(prog.Stdin) > 0 {
		env[promptVariable] = process.StdinPath(runDir) // for programs that take their prompt from a file
	}
	for _, entry := range prog.Env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(entry, 0) {
			return nil, fmt.Errorf("%w: environment entry without a name", ErrBadRequest)
		}
		env[name] = value
	}
	if home := env["HOME"]; home != "" && r.cfg.HomesDir != "" && strings.HasPrefix(home, r.cfg.HomesDir+"/") {
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, fmt.Errorf("create home: %w", err)
		}
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

func homeName(purpose Purpose, agent string) string {
	if agent == "" || !filepath.IsLocal(agent) {
		return "." + string(purpose)
	}
	return agent
}

func names(env []string) []string {
	list := make([]string, 0, len(env))
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		list = append(list, name)
	}
	return list
}
