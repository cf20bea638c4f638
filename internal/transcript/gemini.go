package transcript

import (
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
)

// gemini reads `gemini --output-format stream-json`.
type gemini struct {
	*state
	speaking bool // the model's turn isn't over
	message  string
}

type geminiEvent struct {
	Type      string      `json:"type"`
	SessionID string      `json:"session_id"`
	Model     string      `json:"model"`
	Role      string      `json:"role"`
	Content   string      `json:"content"`
	ToolName  string      `json:"tool_name"`
	ToolID    string      `json:"tool_id"`
	Severity  string      `json:"severity"`
	Message   string      `json:"message"`
	Status    string      `json:"status"`
	Error     geminiError `json:"error"`
	Stats     geminiStats `json:"stats"`
}

type geminiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type geminiStats struct {
	InputTokens  int64 `json:"input_tokens"`
	Cached       int64 `json:"cached"`
	OutputTokens int64 `json:"output_tokens"`
}

func (*gemini) wanted() any { return geminiEvent{} }

func (g *gemini) event(raw []byte) bool {
	var e geminiEvent
	if !line.Decode(raw, &e) {
		return false
	}
	switch e.Type {
	case "init":
		g.session(e.SessionID, e.Model)
	case "message":
		g.speaks(e)
	case "tool_use":
		g.turn()
		g.message = "" // the final message is what follows the last tool
		g.toolBegins(e.ToolID, e.ToolName)
	case "tool_result":
		g.speaking = false
		g.toolEnds(e.ToolID)
	case "error":
		g.fails(Error{Kind: e.Severity, Text: e.Message, Status: foreign.Status(e.Message)})
	case "result":
		g.result(e)
	default:
		return true
	}
	g.changed = true
	return true
}

// speaks takes a message, or a part of one.
func (g *gemini) speaks(e geminiEvent) {
	if e.Role != "assistant" {
		g.speaking = false
		return
	}
	g.turn()
	g.message = line.Bounded(g.message + e.Content)
}

// turn is anything that the model says: its first word after a tool's result begins a turn.
func (g *gemini) turn() {
	g.said.Begun = true
	g.progress()
	if !g.speaking {
		g.speaking, g.message = true, ""
		g.said.Turns = min(g.said.Turns+1, foreign.MaxTurns)
	}
}

// result takes the end. It may be called a success after an error that stopped the work, as when it ran in circles.
func (g *gemini) result(e geminiEvent) {
	g.noTools()
	g.said.Subtype = foreign.Text(e.Status, foreign.Short)
	g.said.Tokens = Tokens{}.plus(Tokens{Input: e.Stats.InputTokens, Cached: e.Stats.Cached, Output: e.Stats.OutputTokens})
	if e.Status == "success" && g.said.Error == nil {
		g.said.End = EndOK
		g.concludes(g.message)
		return
	}
	g.said.End = EndError
	if e.Error.Type != "" || e.Error.Message != "" {
		g.fails(Error{Kind: e.Error.Type, Text: e.Error.Message, Status: foreign.Status(e.Error.Message)})
	}
}

// line hears what is said on stderr: of tries that failed, and of a session that isn't there.
func (g *gemini) line(text string) {
	switch {
	case strings.HasPrefix(text, "Attempt ") && strings.Contains(text, " failed with status "):
		g.fails(Error{Kind: "retry", Text: text, Status: foreign.Status(text)})
	case strings.Contains(text, "Error resuming session"):
		g.fails(Error{Text: text})
		g.said.SessionLost = true
	default:
		return
	}
	g.changed = true
}
