package launch

import (
	"fmt"
	"slices"

	"orch/internal/agent/environ"
	"orch/internal/process"
	"orch/internal/process/redact"
)

// Made is what a run was made with, for people to read.
type Made struct {
	// Directory is the run's own.
	Directory string
	// Spec is what its shim reads. In Argv secrets are replaced by their names: those of orch, and the values that variables
	// of the run have in orch's own environment now.
	Spec process.Spec
	// FirstPort is the first of its Ports; without any, both are zero.
	FirstPort, Ports int
	// Log is its output.
	Log *process.Log
}

// Look reads what a run was made with that lies in dir and has, or had, that slot.
func (c Config) Look(dir string, run *process.Run, slot *int) (Made, error) {
	m := Made{Directory: dir, Spec: run.Spec(), Log: run.Log()}
	known, err := c.known(m.Spec.EnvNames)
	if err != nil {
		return Made{}, err
	}
	m.Spec.Argv = slices.Clone(m.Spec.Argv)
	for i, arg := range m.Spec.Argv {
		m.Spec.Argv[i] = known.String(arg)
	}
	if slot != nil {
		m.FirstPort, m.Ports = c.PortBase+*slot*c.PortsPerRun, c.PortsPerRun
	}
	return m, nil
}

// known are the secrets that can be told without the run's entry: what is in everybody's environment is none.
func (c Config) known(names []string) (*redact.Set, error) {
	everybodys, err := environ.Build(environ.Request{Inherited: c.Environ})
	if err != nil {
		return nil, fmt.Errorf("look at run: %w", err)
	}
	env, err := environ.Build(environ.Request{Inherited: c.Environ, Names: names, Plain: environ.Names(everybodys.Vars)})
	if err != nil {
		return nil, fmt.Errorf("look at run: %w", err)
	}
	return redact.NewSet(slices.Concat(env.Secrets, c.Secrets)), nil
}
