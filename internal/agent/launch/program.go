// Package launch starts programs under shims: it makes what they start in, their run directories, and the shims.
package launch

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/environ"
	"orch/internal/transcript"
)

// ErrBadProgram means that a program can't be started whatever happens.
var ErrBadProgram = errors.New("bad run request")

// PromptFile stands for the path of the prompt's file in Argv and Env: the path is only known once the run is begun.
const PromptFile = "{{prompt_file}}"

// Program is what a run starts.
type Program struct {
	// Agent is the name of the agent's entry, whose HOME it gets, Preset that of its kind. Both are empty for gates and
	// tests, which get a HOME of each run's own.
	Agent, Preset string
	// Format is how the output is to be understood.
	Format transcript.Format
	Argv   []string
	// Dir is the working directory.
	Dir string
	// Env holds "K=V" entries beyond the allowed ones; they win over those.
	Env []string
	// Inherit names more variables to pass on from this process. Those of orch itself are never passed on.
	Inherit []string
	// Plain names variables of Env and Inherit whose values are no secrets. Those of orch never are.
	Plain []string
	// Seeds are files that the agent's HOME is to hold.
	Seeds []environ.Seed
	// Cache names what runs without an agent share for their downloads: the repository.
	Cache string
	Stdin []byte
	// Timeout bounds the run, StallTimeout a silence of its output, ToolStallTimeout one while it waits for a tool of its
	// own; zero is no limit.
	Timeout, StallTimeout, ToolStallTimeout time.Duration
	// ResumedFrom is the run whose session this one goes on with.
	ResumedFrom *uuid.UUID
}

// Validate says what is wrong with it; its error wraps ErrBadProgram.
func (p Program) Validate() error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return fmt.Errorf("%w: no command", ErrBadProgram)
	case !filepath.IsAbs(p.Dir):
		return fmt.Errorf("%w: directory %q is not absolute", ErrBadProgram, p.Dir)
	default:
		return nil
	}
}
