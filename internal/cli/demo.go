package cli

import (
	"context"
	"path/filepath"

	"orch/api"
	"orch/internal/app/setup"
	"orch/internal/client"
	"orch/internal/config"
	"orch/internal/demo"
	"orch/internal/root"
)

type demoCommand struct{}

// Run shows a scripted agent's change landing. It has a data root of its own, so that it never meets real tasks.
func (c *demoCommand) Run(s *session) error {
	if s.global.Root == "" {
		cfg, _, err := config.Load(map[string]string{"ORCH_ROOT": filepath.Join(filepath.Dir(s.cfg.Data.Root), "orch-demo")})
		if err != nil {
			return err
		}
		s.cfg = cfg
	}
	s.cfg.HTTP.URL = ""
	s.cfg.Database.URL, s.cfg.Database.ListenURL, s.cfg.Database.AutoMigrate = config.Secret{}, config.Secret{}, true
	if err := root.Prepare(s.cfg.Data.Root); err != nil {
		return err
	}
	place, err := demo.Make(filepath.Join(s.cfg.Data.Root, "demo"))
	if err != nil {
		return err
	}
	if err := setup.InitRepository(s.ctx, place.Repository, demo.Branch, "A greeter and its tests"); err != nil {
		return err
	}
	s.say("A small repository: %s", place.Repository)
	s.say("A scripted agent gets the task %q; its change lands once `%s` passes.\n", demo.Title, demo.Test)
	body, test, agent := demo.Body, demo.Test, "sh "+place.Agent
	n := api.NewTask{Title: demo.Title, Body: &body, Adhoc: &api.Adhoc{Path: place.Repository, TestCommand: &test, AgentCommand: &agent}}
	err = s.withServer(func(ctx context.Context, server *client.Client) error {
		s.say("")
		return s.runTask(ctx, server, n)
	})
	if err != nil {
		return err
	}
	s.say("\nLook: git -C %s log --stat", place.Repository)
	s.say("Next: orch run --repo YOUR-REPOSITORY --test 'CMD' --agent-cmd 'CMD' --title '...'")
	return nil
}
