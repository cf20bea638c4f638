package remote

import (
	"fmt"

	"orch/api"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/cli/words"
)

// AgentCommand is `orch agent`.
type AgentCommand struct {
	List agentListCommand `cmd:"" help:"List agents: what they are, what they have used today, whether they are paused."`
}

type agentListCommand struct{}

// Run lists agents.
func (c *agentListCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	list, err := server.ListAgents(s.Context)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(list)
	}
	if len(list.Items) == 0 {
		s.Print("no agents: orch.yaml defines none")
		return nil
	}
	err = s.Table("NAME\tPRESET\tMODEL\tRUNNING\tRUNS TODAY\tCOST TODAY\tSTATE", len(list.Items), func(i int) string {
		a := list.Items[i]
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\t%s", terminal.Printable(a.Name), orDash(value(a.Preset)), orDash(terminal.Printable(value(a.Model))),
			a.Running, a.Today.Used.Runs, dollars(a), agentState(a))
	})
	if err != nil {
		return err
	}
	s.Print("today (UTC): %s", words.Used(list.Today))
	return nil
}

// dollars is what an agent has cost today, as far as it says.
func dollars(a api.Agent) string {
	if a.Preset != nil && !a.ReportsCost {
		return "-"
	}
	return words.USD(a.Today.Used.CostUsd, a.Today.MaxCostUsd)
}

func agentState(a api.Agent) string {
	switch p := a.Paused; {
	case p != nil && p.Code == nil:
		return fmt.Sprintf("paused by %s: %s (%#q)", p.Actor, terminal.Printable(p.Reason), words.Resume(*p))
	case p != nil && p.Until == nil:
		return fmt.Sprintf("paused, %s (%#q)", words.PausedFor(*p), words.Resume(*p))
	case p != nil:
		return "paused, " + words.PausedFor(*p)
	case a.Preset == nil:
		return "not in orch.yaml"
	default:
		return "ready"
	}
}
