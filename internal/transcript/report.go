package transcript

import (
	"encoding/json"
	"strings"
	"time"
)

// Statuses of a Report. An unknown one counts as none.
const (
	StatusOK          = "ok"
	StatusFailed      = "failed"
	StatusNeedsInput  = "needs_input"
	StatusAuth        = "auth"
	StatusQuota       = "quota"
	StatusRateLimited = "rate_limited"
)

// reportLine is orch's own line.
type reportLine struct {
	Orch *wireReport `json:"orch"`
}

type wireReport struct {
	Status       string `json:"status"`
	CostUSD      number `json:"cost_usd"`
	Summary      string `json:"summary"`
	Question     string `json:"question"`
	SessionID    string `json:"session_id"`
	ResetAt      moment `json:"reset_at"`
	InputTokens  number `json:"input_tokens"`
	OutputTokens number `json:"output_tokens"`
	Turns        number `json:"turns"`
}

// moment is a time as RFC 3339 or in seconds since 1970; zero for anything else.
type moment struct{ time.Time }

// UnmarshalJSON never fails: a program that can't tell the time is heard all the same.
func (m *moment) UnmarshalJSON(raw []byte) error {
	var n float64
	if json.Unmarshal(raw, &n) == nil {
		m.Time = epoch(n)
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			m.Time = epoch(float64(at.Unix()))
		}
	}
	return nil
}

// reported reads orch's line; nil when it is none, or says nothing.
func reported(raw []byte) *Report {
	var line reportLine
	if !decode(raw, &line) || line.Orch == nil || *line.Orch == (wireReport{}) {
		return nil
	}
	return line.Orch.report()
}

// report bounds what was said.
func (w wireReport) report() *Report {
	r := &Report{
		CostUSD: w.CostUSD.usd(), Summary: clip(w.Summary, longText), Question: clip(w.Question, longText),
		SessionID: clip(w.SessionID, shortText), ResetAt: w.ResetAt.Time,
		InputTokens: counted[int64](w.InputTokens, maxTokens), OutputTokens: counted[int64](w.OutputTokens, maxTokens),
		Turns: counted(w.Turns, maxTurns),
	}
	switch w.Status {
	case StatusOK, StatusFailed, StatusNeedsInput, StatusAuth, StatusQuota, StatusRateLimited:
		r.Status = w.Status
	}
	return r
}

// ofAgent leaves what an agent may say of itself: how it went, and what it wants to know.
func (r *Report) ofAgent() *Report {
	said := &Report{Summary: r.Summary, Question: r.Question}
	switch r.Status {
	case StatusOK, StatusFailed, StatusNeedsInput:
		said.Status = r.Status
	}
	return said
}

// concluding finds orch's line at the end of a final message. The rest is the message without that line.
func concluding(message string) (said *Report, rest string, ok bool) {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	for len(lines) > 0 && unsaid(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return nil, "", false
	}
	last := strings.Trim(lines[len(lines)-1], " \t\r`")
	if !strings.HasPrefix(last, "{") {
		return nil, "", false
	}
	if said = reported([]byte(last)); said == nil {
		return nil, "", false
	}
	said = said.ofAgent()
	lines = lines[:len(lines)-1]
	for len(lines) > 0 && unsaid(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return said, strings.Join(lines, "\n"), true
}

// unsaid is a line that says nothing: an empty one, or the fence that models like to put around JSON.
func unsaid(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "```") && !strings.Contains(line, "{")
}

// command is the format of any program: its last orch line counts.
type command struct{ *state }

func (*command) wanted() any { return reportLine{} }

func (c *command) event(raw []byte) bool {
	said := reported(raw)
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
