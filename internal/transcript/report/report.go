// Package report reads orch's own line {"orch":{…}}, by which a program or an agent says how its work went.
package report

import (
	"strings"
	"time"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
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

// Report is the object of orch's line, within bounds.
type Report struct {
	Status       string    `json:"status"`
	CostUSD      *float64  `json:"cost_usd,omitempty"`
	Summary      string    `json:"summary,omitempty"`
	Question     string    `json:"question,omitempty"`
	SessionID    string    `json:"session_id,omitempty"`
	ResetAt      time.Time `json:"reset_at,omitzero"`
	InputTokens  *int64    `json:"input_tokens,omitempty"`
	OutputTokens *int64    `json:"output_tokens,omitempty"`
	Turns        *int      `json:"turns,omitempty"`
}

// Line is orch's own line, as it is printed.
type Line struct {
	Orch *wire `json:"orch"`
}

type wire struct {
	Status       string         `json:"status"`
	CostUSD      foreign.Number `json:"cost_usd"`
	Summary      string         `json:"summary"`
	Question     string         `json:"question"`
	SessionID    string         `json:"session_id"`
	ResetAt      foreign.Moment `json:"reset_at"`
	InputTokens  foreign.Number `json:"input_tokens"`
	OutputTokens foreign.Number `json:"output_tokens"`
	Turns        foreign.Number `json:"turns"`
}

// Read reads orch's line; nil when it is none, or says nothing.
func Read(raw []byte) *Report {
	var said Line
	if !line.Decode(raw, &said) || said.Orch == nil || *said.Orch == (wire{}) {
		return nil
	}
	return said.Orch.report()
}

// report bounds what was said.
func (w wire) report() *Report {
	r := &Report{
		CostUSD: w.CostUSD.USD(), Summary: foreign.Text(w.Summary, foreign.Long), Question: foreign.Text(w.Question, foreign.Long),
		SessionID: foreign.Text(w.SessionID, foreign.Short), ResetAt: w.ResetAt.Time,
		InputTokens: foreign.Count[int64](w.InputTokens, foreign.MaxTokens), OutputTokens: foreign.Count[int64](w.OutputTokens, foreign.MaxTokens),
		Turns: foreign.Count(w.Turns, foreign.MaxTurns),
	}
	switch w.Status {
	case StatusOK, StatusFailed, StatusNeedsInput, StatusAuth, StatusQuota, StatusRateLimited:
		r.Status = w.Status
	}
	return r
}

// OfAgent leaves what an agent may say of itself: how it went, and what it wants to know.
func (r *Report) OfAgent() *Report {
	said := &Report{Summary: r.Summary, Question: r.Question}
	switch r.Status {
	case StatusOK, StatusFailed, StatusNeedsInput:
		said.Status = r.Status
	}
	return said
}

// Concluding finds orch's line at the end of a final message. The rest is the message without that line.
func Concluding(message string) (said *Report, rest string, ok bool) {
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
	if said = Read([]byte(last)); said == nil {
		return nil, "", false
	}
	said = said.OfAgent()
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
