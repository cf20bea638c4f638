package cli

import (
	"log/slog"

	"orch/internal/app"
	"orch/internal/cli/exit"
	"orch/internal/process/shim"
)

type serveCommand struct {
	KillAgents bool `help:"End running agents at the stop, instead of leaving them to be followed after the next start."`
}

// Run runs the server until a stop signal.
func (c *serveCommand) Run(s *local) error {
	log := s.serverLogger()
	return app.Serve(s.Context, app.Options{
		Config: s.cfg, Logger: log, KillAgents: c.KillAgents, HurryUp: s.hurry,
		Ready: func(up app.Started) {
			log.InfoContext(s.Context, "orch is up", slog.String("address", up.Addr), slog.String("socket", up.Socket),
				slog.String("root", up.Root), slog.String("version", app.ProgramVersion()))
			if up.Repositories == 0 {
				log.InfoContext(s.Context, "no repository is configured: add one with `orch init PATH`", slog.String("config", s.cfg.Data.File))
			}
		},
	})
}

type versionCommand struct{}

// Run prints the version.
func (c *versionCommand) Run(s *local) error {
	if s.JSON {
		return s.PrintJSON(map[string]string{"version": app.ProgramVersion()})
	}
	s.Print("orch %s", app.ProgramVersion())
	return nil
}

type shimCommand struct {
	Dir string `arg:"" help:"Run directory."`
}

// Run owns one run.
func (c *shimCommand) Run(*local) error {
	if code := c.exec(); code != exit.Done {
		return exit.Silently(code)
	}
	return nil
}

func (c *shimCommand) exec() int { return shim.Run(c.Dir) }
