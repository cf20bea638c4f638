package cli

type taskRevertCommand struct {
	Key string `arg:"" help:"Key of the task that has landed."`
}

// Run adds a task that takes back what another has landed.
func (c *taskRevertCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.RevertTask(s.ctx, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(t)
	}
	s.print("%s added to take back %s; watch it with `orch task show %s`", t.Key, c.Key, t.Key)
	return nil
}
