package transcript

import (
	"slices"
	"strings"
	"time"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/report"
)

// Format names a way of an agent program to say what it does; empty is none.
type Format string

// The formats that are understood.
const (
	None     Format = ""
	Claude   Format = "claude"
	Codex    Format = "codex"
	Gemini   Format = "gemini"
	OpenCode Format = "opencode"
	Aider    Format = "aider"
	Command  Format = "command"
)

// End is how a program says that its work ended.
type End string

// The ends; a program that said nothing of an end has none.
const (
	EndNone  End = ""
	EndOK    End = "ok"
	EndError End = "error"
)

const maxDenied = 16

// Said is what a program has said so far. It holds no output but short sentences: encoded it has at most 32 KiB.
type Said struct {
	SessionID string `json:"session_id,omitempty"`
	Model     string `json:"model,omitempty"`
	// Begun means that the model has answered something.
	Begun  bool   `json:"begun,omitempty"`
	Turns  int    `json:"turns,omitempty"`
	Tokens Tokens `json:"tokens,omitzero"`
	// CostUSD is nil when the program named no cost.
	CostUSD *float64 `json:"cost_usd,omitempty"`
	// Cumulative means that Tokens and CostUSD may go on from those of the session that was resumed: claude's do since some
	// version. Seen is what the program's own messages of this run came to, if it tells: without what subagents used, so no
	// count of this run alone is below it.
	Cumulative bool   `json:"cumulative,omitempty"`
	Seen       Tokens `json:"seen,omitzero"`
	End        End    `json:"end,omitempty"`
	// Subtype is the format's own word for the end.
	Subtype string `json:"subtype,omitempty"`
	// Error is the last one that no progress followed.
	Error *Error `json:"error,omitempty"`
	// Limit is a refusal because of a limit, if the format says so in a field.
	Limit *Limit `json:"limit,omitempty"`
	// Denied names the tools that weren't allowed.
	Denied   []string `json:"denied,omitempty"`
	Question string   `json:"question,omitempty"`
	Summary  string   `json:"summary,omitempty"`
	// Report is orch's own line, when the program wrote one where it counts.
	Report *report.Report `json:"report,omitempty"`
	// Tool is the last tool that began, ToolsOpen how many haven't ended.
	Tool      string `json:"tool,omitempty"`
	ToolsOpen int    `json:"tools_open,omitempty"`
	// SessionLost means that the session to go on with is unknown to the program, TooLong that it doesn't fit the model.
	SessionLost bool  `json:"session_lost,omitempty"`
	TooLong     bool  `json:"too_long,omitempty"`
	Lines       int64 `json:"lines,omitempty"`
	// Bad counts lines that should have been understood and weren't.
	Bad int64 `json:"bad,omitempty"`
}

// Tokens are counts of tokens. Input includes Cached.
type Tokens struct {
	Input  int64 `json:"input,omitempty"`
	Cached int64 `json:"cached,omitempty"`
	Output int64 `json:"output,omitempty"`
}

func (t Tokens) plus(more Tokens) Tokens {
	return Tokens{
		Input:  foreign.Tokens(t.Input + foreign.Tokens(more.Input)),
		Cached: foreign.Tokens(t.Cached + foreign.Tokens(more.Cached)),
		Output: foreign.Tokens(t.Output + foreign.Tokens(more.Output)),
	}
}

// Error is what went wrong in the program's own words.
type Error struct {
	// Kind is the format's own word.
	Kind string `json:"kind,omitempty"`
	Text string `json:"text,omitempty"`
	// Status is an HTTP status, zero when none was named.
	Status     int           `json:"status,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
}

// Limit is a refusal that ends by itself.
type Limit struct {
	Kind string `json:"kind,omitempty"`
	// ResetAt is zero when the program didn't say.
	ResetAt time.Time `json:"reset_at,omitzero"`
}

// Limited reports whether the last thing that was said is that a limit was met. Some programs then wait for its end in
// silence, for days if need be.
func (s Said) Limited() bool {
	if s.Limit != nil || s.Error == nil {
		return s.Limit != nil
	}
	switch s.Error.Status {
	case 402, 429, 503, 529: // payment required, too many requests, unavailable, overloaded
		return true
	}
	text := strings.ToLower(s.Error.Kind + " " + s.Error.Text)
	return slices.ContainsFunc(
		[]string{"rate limit", "rate_limit", "usage limit", "limit reached", "limit exhausted", "quota", "too many requests", "overloaded"},
		func(words string) bool { return strings.Contains(text, words) },
	)
}
