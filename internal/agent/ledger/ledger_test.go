package ledger

import (
	"testing"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/transcript"
	"orch/internal/transcript/report"
)

func TestResumable(t *testing.T) {
	t.Parallel()
	session, failed, turns := "s", outcome.AgentFailed, 1
	ended := func(o outcome.Outcome) Run { return Run{SessionID: &session, Outcome: &o} }
	fruitless := Run{SessionID: &session, Outcome: &failed, ResumedFrom: &uuid.UUID{}}
	fruitful := fruitless
	fruitful.Turns = &turns
	lost := ended(failed)
	lost.SessionLost = true
	for name, tt := range map[string]struct {
		newestFirst []Run
		want        bool
	}{
		"none":                              {nil, false},
		"failed":                            {[]Run{ended(failed)}, true},
		"asked":                             {[]Run{ended(outcome.NeedsInput)}, true},
		"held up":                           {[]Run{ended(outcome.Quota)}, true},
		"ok":                                {[]Run{ended(outcome.OK)}, false},
		"lost":                              {[]Run{lost}, false},
		"lost, an older one isn't":          {[]Run{lost, ended(failed)}, false},
		"no session, an older one has":      {[]Run{{Outcome: &failed}, ended(failed)}, true},
		"four times in vain":                {[]Run{fruitless, fruitless, fruitless, fruitless, ended(failed)}, true},
		"five times in vain":                {[]Run{fruitless, fruitless, fruitless, fruitless, fruitless}, false},
		"five times, and once not in vain":  {[]Run{fruitless, fruitful, fruitless, fruitless, fruitless}, true},
		"the end of the newest isn't known": {[]Run{{SessionID: &session}}, false},
	} {
		if _, ok := resumable(tt.newestFirst); ok != tt.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	usd := func(x float64) *float64 { return &x }
	before := &SessionTotal{CostUSD: usd(1), Tokens: transcript.Tokens{Input: 100, Cached: 50, Output: 10}}
	after := transcript.Said{CostUSD: usd(1.5), Tokens: transcript.Tokens{Input: 120, Cached: 60, Output: 15}, Turns: 3}
	running := after
	running.Cumulative = true
	longer := running // of a version that counts anew, and used more than the run before
	longer.Seen = transcript.Tokens{Input: 120, Output: 15}
	goesOn := running
	goesOn.Seen = transcript.Tokens{Input: 20, Output: 5}
	cheaper := running
	cheaper.CostUSD = usd(0.75)
	anew := running
	anew.CostUSD, anew.Tokens.Input = usd(0.25), 30
	for name, tt := range map[string]struct {
		said   transcript.Said
		before *SessionTotal
		cost   float64
		input  int64
		total  float64 // -1: none
	}{
		"a count of its own":                 {after, before, 1.5, 120, 1},
		"a count of its own, a first run":    {after, nil, 1.5, 120, -1},
		"a running count":                    {running, before, 0.5, 20, 1.5},
		"a running count, first run":         {running, nil, 1.5, 120, 1.5},
		"a running count that began anew":    {anew, before, 0.25, 30, 0.25},
		"another version that counts anew":   {cheaper, before, 0.75, 120, 0.75},
		"counts anew, and has used more":     {longer, before, 1.5, 120, 1.5},
		"counts on, and tells what is own":   {goesOn, before, 0.5, 20, 1.5},
		"failed to start, all is zero":       {transcript.Said{Cumulative: true, CostUSD: usd(0)}, before, 0, 0, 1},
		"an unpriced count before":           {running, &SessionTotal{}, 1.5, 120, 1.5},
		"more than anything can cost":        {transcript.Said{CostUSD: usd(1e9), Cumulative: true}, nil, -1, 0, -1},
		"less than nothing":                  {transcript.Said{CostUSD: usd(-1)}, nil, -1, 0, -1},
		"died before it counted, go on from": {transcript.Said{}, before, -1, 0, 1},
	} {
		u, total := Used(tt.said, tt.before)
		if tt.cost < 0 != (u.CostUSD == nil) || u.CostUSD != nil && *u.CostUSD != tt.cost || u.InputTokens != tt.input {
			t.Errorf("%s: %+v", name, u)
		}
		switch {
		case tt.total == -1 && total != nil,
			tt.total >= 0 && (total == nil || total.CostUSD == nil || *total.CostUSD != tt.total):
			t.Errorf("%s: total %+v", name, total)
		}
	}
}

func TestWhatTheReportTellsFillsTheGaps(t *testing.T) {
	t.Parallel()
	cost, input, turns := 0.5, int64(7), 3
	report := &report.Report{
		CostUSD: &cost, InputTokens: &input, Turns: &turns, SessionID: "theirs", Summary: "sum", Question: "q",
	}
	said := Reported(transcript.Said{Report: report})
	if said.CostUSD != &cost || said.Tokens.Input != 7 || said.Turns != 3 || said.SessionID != "theirs" || said.Summary != "sum" || said.Question != "q" {
		t.Errorf("%+v", said)
	}
	own := transcript.Said{Report: report, SessionID: "own", Summary: "own", Turns: 1, Tokens: transcript.Tokens{Output: 1}}
	if said := Reported(own); said.SessionID != "own" || said.Summary != "own" || said.Turns != 1 || said.Tokens.Input != 0 {
		t.Errorf("%+v", said)
	}
}
