package launch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/internal/agent/environ"
	"orch/internal/process"
)

// Config is what all launches of a data root have in common.
type Config struct {
	// Shim is the command line of the shim, without the directory.
	Shim []string
	// HomesDir, Environ and Secrets are those of the environment: see package environ. Secrets are orch's own.
	HomesDir string
	Environ  []string
	Secrets  []process.Secret
	// KillGrace, LogCap, OrphanGrace and OrphanPatience are those of process.Spec.
	KillGrace, OrphanGrace, OrphanPatience time.Duration
	LogCap                                 int64
	// StartWithin bounds the time from the intent to the start of the program.
	StartWithin time.Duration
	// PortBase is the first port of the first slot, PortsPerRun how many each has.
	PortBase, PortsPerRun int
}

// Launch is a program that is about to be started.
type Launch struct {
	cfg  Config
	dir  string
	prog Program
	env  environ.Environment
}

// Prepare looks whether a program can be started, and makes what outlives its run: directories, and the files of an agent's
// HOME. dir will be the run's directory. Errors: ErrBadProgram, environ.ErrSeed.
func (c Config) Prepare(dir string, prog Program) (*Launch, error) {
	if err := prog.Validate(); err != nil {
		return nil, err
	}
	request := environ.Request{
		Inherited: c.Environ, Names: prog.Inherit, Set: atPrompt(prog.Env, dir), Plain: prog.Plain, HomesDir: c.HomesDir,
		Agent: prog.Agent, Cache: prog.Cache, TmpDir: filepath.Join(dir, "tmp"),
	}
	if len(prog.Stdin) > 0 {
		request.PromptFile = process.StdinPath(dir)
	}
	env, err := environ.Build(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadProgram, err)
	}
	return &Launch{cfg: c, dir: dir, prog: prog, env: env}, env.Prepare(prog.Seeds)
}

// atPrompt puts the path of the prompt's file where it is wanted.
func atPrompt(texts []string, dir string) []string {
	placed := make([]string, len(texts))
	for i, text := range texts {
		placed[i] = strings.ReplaceAll(text, PromptFile, process.StdinPath(dir))
	}
	return placed
}

// Create makes the run's directory. intended is the moment before its intent, by CLOCK_BOOTTIME.
func (l *Launch) Create(runID string, slot *int, intended int64) error {
	if slot != nil {
		l.env.Vars = append(l.env.Vars, environ.Ports(l.cfg.PortBase+*slot*l.cfg.PortsPerRun, l.cfg.PortsPerRun)...)
	}
	return process.Create(l.dir, process.Spec{
		RunID: runID, Argv: atPrompt(l.prog.Argv, l.dir), Dir: l.prog.Dir, EnvNames: environ.Names(l.env.Vars), Timeout: l.prog.Timeout,
		StallTimeout: l.prog.StallTimeout, ToolStallTimeout: l.prog.ToolStallTimeout, Format: l.prog.Format, KillGrace: l.cfg.KillGrace,
		LogCap: l.cfg.LogCap, StartBy: intended + int64(l.cfg.StartWithin), OrphanGrace: l.cfg.OrphanGrace,
		OrphanPatience: l.cfg.OrphanPatience, Contact: intended,
	}, l.prog.Stdin)
}

// Start starts the shim.
func (l *Launch) Start(ctx context.Context) (*process.Run, error) {
	if err := l.env.Begin(); err != nil {
		return nil, err
	}
	return process.Launch(ctx, l.cfg.Shim, l.dir, process.Bundle{
		Env: l.env.Vars, Secrets: slices.Concat(l.env.Secrets, l.cfg.Secrets),
	})
}
