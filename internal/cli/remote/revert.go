package remote

import "orch/internal/cli/session"

type taskRevertCommand struct {
	Key string `arg:"" help:"Key of the task that has landed."`
}

// Run adds a task that takes back what another has landed.
func (c *taskRevertCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.RevertTask(s.Context, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(t)
	}
	s.Print("%s added to take back %s; watch it with `orch task show %s`", t.Key, c.Key, t.Key)
	return nil
}
