package ledger

import (
	"math"

	"orch/internal/transcript"
)

// Usage is what a run has used, without what the session that it went on with had used before.
type Usage struct {
	// CostUSD is nil when the program didn't say.
	CostUSD *float64
	// InputTokens include CachedTokens.
	InputTokens, CachedTokens, OutputTokens int64
	Turns                                   int
}

// Tokens is how many went in and out.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// SessionTotal is how far a program's own count has come that goes on over all runs of a session.
type SessionTotal struct {
	CostUSD *float64          `json:"cost_usd,omitempty"`
	Tokens  transcript.Tokens `json:"tokens,omitzero"`
}

// maxCostUSD is more than one run can cost, and fits the column.
const maxCostUSD = 99999

// Used tells what a run has used of its own, and how far the session's count has come. A run that died before it named a
// count, or named none but zero, leaves the earlier one standing, so that its use is counted with the next run of the session.
func Used(said transcript.Said, before *SessionTotal) (Usage, *SessionTotal) {
	u := Usage{
		CostUSD: sane(said.CostUSD), InputTokens: said.Tokens.Input, CachedTokens: said.Tokens.Cached, OutputTokens: said.Tokens.Output,
		Turns: min(max(said.Turns, 0), math.MaxInt32),
	}
	if !said.Cumulative || said.Tokens == (transcript.Tokens{}) && (u.CostUSD == nil || *u.CostUSD == 0) {
		return u, before
	}
	total := &SessionTotal{CostUSD: u.CostUSD, Tokens: said.Tokens}
	if before == nil || !total.goesOnFrom(*before, said.Seen) {
		return u, total
	}
	u.InputTokens -= before.Tokens.Input
	u.CachedTokens = max(u.CachedTokens-before.Tokens.Cached, 0)
	u.OutputTokens -= before.Tokens.Output
	if u.CostUSD != nil && before.CostUSD != nil {
		cost := *u.CostUSD - *before.CostUSD
		u.CostUSD = &cost
	}
	return u, total
}

// goesOnFrom says whether a count can be the one of before, gone on with. Some versions of a program count on over a resumed
// session and others don't: a count that has grown by less than what the run's own messages came to began anew, and
// so did one that is smaller than before in anything.
func (t SessionTotal) goesOnFrom(before SessionTotal, seen transcript.Tokens) bool {
	return t.Tokens.Input-before.Tokens.Input >= seen.Input && t.Tokens.Output-before.Tokens.Output >= seen.Output &&
		(t.CostUSD == nil || before.CostUSD == nil || *t.CostUSD >= *before.CostUSD)
}

func sane(cost *float64) *float64 {
	if cost == nil || math.IsNaN(*cost) || *cost < 0 || *cost > maxCostUSD {
		return nil
	}
	return cost
}

// Reported fills in from orch's own line what the format itself doesn't tell.
func Reported(said transcript.Said) transcript.Said {
	report := said.Report
	if report == nil {
		return said
	}
	if said.CostUSD == nil {
		said.CostUSD = report.CostUSD
	}
	if said.Tokens == (transcript.Tokens{}) {
		said.Tokens = transcript.Tokens{Input: count(report.InputTokens), Output: count(report.OutputTokens)}
	}
	if said.Turns == 0 && report.Turns != nil {
		said.Turns = *report.Turns
	}
	if said.SessionID == "" {
		said.SessionID = report.SessionID
	}
	if said.Summary == "" {
		said.Summary = report.Summary
	}
	if said.Question == "" {
		said.Question = report.Question
	}
	return said
}

func count(n *int64) int64 {
	if n == nil {
		return 0
	}
	return max(*n, 0)
}
