package cli

import (
	"errors"
	"path/filepath"

	"orch/internal/app/doctor"
	"orch/internal/app/setup"
	"orch/internal/cli/exit"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/root/layout"
)

type initCommand struct {
	Path     string `arg:"" help:"Path of the git repository, bare or normal."`
	Name     string `help:"Name for keys and branches (default: from the path)."`
	Base     string `help:"Branch that changes land on (default: the repository's own)." placeholder:"BRANCH"`
	Test     string `help:"Command that decides whether a change may land (default: found by what the repository holds)." placeholder:"CMD" xor:"test"`
	NoTest   bool   `help:"Land without a test." xor:"test"`
	Setup    string `help:"Command that prepares a checkout, e.g. installs dependencies." placeholder:"CMD"`
	AgentCmd string `help:"The agent to write into a new orch.yaml." placeholder:"CMD"`
}

// Run writes the repository's entry.
func (c *initCommand) Run(s *local) error {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return exit.Usagef("find the repository: %w", err)
	}
	if err := layout.Prepare(s.cfg.Data.Root); err != nil {
		return err
	}
	n := setup.NewRepository{Path: path, Name: c.Name, Base: c.Base, Test: c.Test, Setup: c.Setup, AgentCommand: c.AgentCmd}
	if c.NoTest {
		n.Test = orchyaml.TestNone
	}
	added, err := setup.AddRepository(s.Context, s.cfg, n)
	if problem, ok := errors.AsType[*forge.ProblemError](err); ok {
		return exit.With(exit.Failed, problem)
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(added)
	}
	s.Print("added %s to %s", added.Name, added.Config)
	s.Print("  path %s, lands on %s, test: %s", added.Path, added.Base, added.Test)
	if added.AgentMissing {
		s.Print("Say which agent works: edit agents.coder.command in %s", added.Config)
	}
	s.Print("Then: orch serve, and: orch task add --repo %s --title '...'", added.Name)
	return nil
}

type doctorCommand struct{}

// Run prints what the doctor found, and exits with 1 when something is broken.
func (c *doctorCommand) Run(s *local) error {
	found := doctor.Examine(s.Context, s.cfg)
	broken := 0
	for _, f := range found {
		if f.Status == doctor.Failed {
			broken++
		}
	}
	if s.JSON {
		if err := s.PrintJSON(map[string]any{"findings": found}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			s.Print("%-8s %s: %s", f.Status, f.Name, f.Detail)
			if f.Remedy != "" {
				s.Print("         → %s", f.Remedy)
			}
		}
	}
	if broken > 0 {
		return exit.Silently(exit.Failed)
	}
	return nil
}
