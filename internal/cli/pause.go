package cli

import (
	"orch/api"
	"orch/internal/cli/words"
)

// heldFlags name what a pause holds back.
type heldFlags struct {
	Lane  string `required:"" xor:"held" help:"A lane: agents, merge or system." placeholder:"NAME"`
	Repo  string `required:"" xor:"held" help:"A repository." placeholder:"NAME"`
	Agent string `required:"" xor:"held" help:"An agent of orch.yaml." placeholder:"NAME"`
}

func (f heldFlags) lane() *string  { return given(f.Lane) }
func (f heldFlags) repo() *string  { return given(f.Repo) }
func (f heldFlags) agent() *string { return given(f.Agent) }

type pauseCommand struct {
	heldFlags

	Reason string `required:"" help:"Why, in one line, for whoever wonders."`
}

// Run pauses a lane, a repository or an agent.
func (c *pauseCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	p, err := server.Pause(s.ctx, api.PauseRequest{Lane: c.lane(), Repo: c.repo(), Agent: c.agent(), Reason: c.Reason})
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(p)
	}
	s.print("%s is paused: what runs goes on to its end, nothing new begins before %#q", words.Held(p.Scope, p.Name), words.Resume(p))
	return nil
}

type resumeCommand struct {
	heldFlags
}

// Run ends a pause.
func (c *resumeCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	r, err := server.Resume(s.ctx, api.ResumeRequest{Lane: c.lane(), Repo: c.repo(), Agent: c.agent()})
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(r)
	}
	if r.WasPaused {
		s.print("%s goes on", words.Held(r.Scope, r.Name))
	} else {
		s.print("%s wasn't paused", words.Held(r.Scope, r.Name))
	}
	return nil
}
