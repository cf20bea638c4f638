package remote

import (
	"orch/api"
	"orch/internal/cli/session"
	"orch/internal/cli/words"
)

// heldFlags name what a pause holds back.
type heldFlags struct {
	Lane  string `required:"" xor:"held" help:"A lane: agents, merge or system." placeholder:"NAME"`
	Repo  string `required:"" xor:"held" help:"A repository." placeholder:"NAME"`
	Agent string `required:"" xor:"held" help:"An agent of orch.yaml." placeholder:"NAME"`
}

func (f heldFlags) lane() *string  { return session.Given(f.Lane) }
func (f heldFlags) repo() *string  { return session.Given(f.Repo) }
func (f heldFlags) agent() *string { return session.Given(f.Agent) }

// PauseCommand is `orch pause`.
type PauseCommand struct {
	heldFlags

	Reason string `required:"" help:"Why, in one line, for whoever wonders."`
}

// Run pauses a lane, a repository or an agent.
func (c *PauseCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	p, err := server.Pause(s.Context, api.PauseRequest{Lane: c.lane(), Repo: c.repo(), Agent: c.agent(), Reason: c.Reason})
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(p)
	}
	s.Print("%s is paused: what runs goes on to its end, nothing new begins before %#q", words.Held(p.Scope, p.Name), words.Resume(p))
	return nil
}

// ResumeCommand is `orch resume`.
type ResumeCommand struct {
	heldFlags
}

// Run ends a pause.
func (c *ResumeCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	r, err := server.Resume(s.Context, api.ResumeRequest{Lane: c.lane(), Repo: c.repo(), Agent: c.agent()})
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(r)
	}
	if r.WasPaused {
		s.Print("%s goes on", words.Held(r.Scope, r.Name))
	} else {
		s.Print("%s wasn't paused", words.Held(r.Scope, r.Name))
	}
	return nil
}
