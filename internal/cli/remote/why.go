package remote

import (
	"orch/internal/cli/session"
	"orch/internal/cli/words"
)

// WhyCommand is `orch why`.
type WhyCommand struct {
	Key string `arg:"" help:"Key of the task."`
}

// Run says why a task is where it is.
func (c *WhyCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	d, err := server.GetTask(s.Context, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(d)
	}
	for _, line := range words.Why(d) {
		s.Print("%s", line)
	}
	return nil
}
