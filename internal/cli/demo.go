package cli

import (
	"context"
	"path/filepath"

	"orch/api"
	"orch/internal/app/setup"
	"orch/internal/cli/remote"
	"orch/internal/client"
	"orch/internal/config"
	"orch/internal/demo"
	"orch/internal/root/layout"
)

type demoCommand struct{}

// Run shows a scripted agent's change landing. It has a data root of its own, so that it never meets real tasks.
func (c *demoCommand) Run(s *local) error {
	cfg := s.cfg
	if s.global.Root == "" {
		own, _, err := config.Load(map[string]string{"ORCH_ROOT": filepath.Join(filepath.Dir(s.cfg.Data.Root), "orch-demo")})
		if err != nil {
			return err
		}
		cfg = own
	}
	cfg.HTTP.URL = ""
	cfg.Database.URL, cfg.Database.ListenURL, cfg.Database.AutoMigrate = config.Secret{}, config.Secret{}, true
	s.use(cfg)
	if err := layout.Prepare(s.cfg.Data.Root); err != nil {
		return err
	}
	place, err := demo.Make(filepath.Join(s.cfg.Data.Root, "demo"))
	if err != nil {
		return err
	}
	if err := setup.InitRepository(s.Context, place.Repository, demo.Branch, "A greeter and its tests"); err != nil {
		return err
	}
	s.Say("A small repository: %s", place.Repository)
	s.Say("A scripted agent gets the task %q; its change lands once `%s` passes.\n", demo.Title, demo.Test)
	body, test, agent := demo.Body, demo.Test, "sh "+place.Agent
	n := api.NewTask{Title: demo.Title, Body: &body, Adhoc: &api.Adhoc{Path: place.Repository, TestCommand: &test, AgentCommand: &agent}}
	err = s.withServer(func(ctx context.Context, server *client.Client) error {
		s.Say("")
		return remote.RunTask(ctx, s.Session, server, s.served, n)
	})
	if err != nil {
		return err
	}
	s.Say("\nLook: git -C %s log --stat", place.Repository)
	s.Say("Next: orch run --repo YOUR-REPOSITORY --test 'CMD' --agent-cmd 'CMD' --title '...'")
	return nil
}
