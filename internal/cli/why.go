package cli

import "orch/internal/cli/words"

type whyCommand struct {
	Key string `arg:"" help:"Key of the task."`
}

// Run says why a task is where it is.
func (c *whyCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	d, err := server.GetTask(s.ctx, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(d)
	}
	for _, line := range words.Why(d) {
		s.print("%s", line)
	}
	return nil
}
