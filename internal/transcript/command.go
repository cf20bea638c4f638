package transcript

import "orch/internal/transcript/report"

// command is the format of any program: its last orch line counts.
type command struct{ *state }

func (*command) wanted() any { return report.Line{} }

func (c *command) event(raw []byte) bool {
	said := report.Read(raw)
	if said == nil {
		return true
	}
	c.said.Report, c.said.Summary, c.changed = said, said.Summary, true
	c.session(said.SessionID, "")
	if said.CostUSD != nil {
		c.said.CostUSD = said.CostUSD
	}
	if said.InputTokens != nil {
		c.said.Tokens.Input = *said.InputTokens
	}
	if said.OutputTokens != nil {
		c.said.Tokens.Output = *said.OutputTokens
	}
	if said.Turns != nil {
		c.said.Turns = *said.Turns
	}
	return true
}

func (*command) line(string) {}
