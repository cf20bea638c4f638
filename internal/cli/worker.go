package cli

import (
	"log/slog"

	"orch/internal/app"
)

type workerCommand struct {
	KillAgents bool `help:"End running agents at the stop, instead of leaving them to be followed by the next worker."`
}

// Run runs a worker until a stop signal.
func (c *workerCommand) Run(s *local) error {
	log := s.serverLogger()
	return app.Work(s.Context, app.Options{
		Config: s.cfg, Logger: log, KillAgents: c.KillAgents, HurryUp: s.hurry,
		Ready: func(up app.Started) {
			log.InfoContext(s.Context, "orch worker is up", slog.String("root", up.Root), slog.Int("repositories", up.Repositories),
				slog.String("version", app.ProgramVersion()))
		},
	})
}
