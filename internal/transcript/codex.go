package transcript

import (
	"encoding/json"
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
)

// codex reads `codex exec --json`.
type codex struct {
	*state
	message string // the last that the agent said
}

type codexEvent struct {
	Type     string     `json:"type"`
	ThreadID string     `json:"thread_id"`
	Message  string     `json:"message"`
	Error    codexError `json:"error"`
	Item     codexItem  `json:"item"`
	Usage    codexUsage `json:"usage"`
}

type codexError struct {
	Message string `json:"message"`
}

type codexItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Text      string `json:"text"`
	Tool      string `json:"tool"`
	Questions []struct {
		Question string `json:"question"`
	} `json:"questions"`
}

type codexUsage struct {
	InputTokens       int64 `json:"input_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
}

// codexAnswer is the answer of the API that some errors hold as their text.
type codexAnswer struct {
	Status int `json:"status"`
	Error  struct {
		Type            string  `json:"type"`
		Code            string  `json:"code"`
		Message         string  `json:"message"`
		ResetsAt        float64 `json:"resets_at"`
		ResetsInSeconds float64 `json:"resets_in_seconds"`
	} `json:"error"`
}

func (*codex) wanted() any { return codexEvent{} }

func (c *codex) event(raw []byte) bool {
	var e codexEvent
	if !line.Decode(raw, &e) {
		return false
	}
	switch e.Type {
	case "thread.started":
		c.session(e.ThreadID, "")
	case "turn.started":
		c.said.End, c.said.Subtype = EndNone, ""
	case "item.started", "item.updated", "item.completed":
		c.item(e.Type, e.Item)
	case "turn.completed":
		c.completed(e.Usage)
	case "turn.failed":
		c.said.End, c.said.Subtype = EndError, e.Type
		c.noTools()
		c.failed(e.Error.Message)
	case "error": // it may be followed by another try
		c.failed(e.Message)
	default:
		return true
	}
	c.changed = true
	return true
}

func (c *codex) item(event string, item codexItem) {
	if item.Type == "error" || item.Type == "" { // a warning
		return
	}
	c.said.Begun, c.said.Question = true, ""
	c.progress()
	switch item.Type {
	case "agent_message":
		if event == "item.completed" {
			c.message = item.Text
			c.turn()
		}
	case "command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search":
		c.tool(event, item)
	case "request_user_input":
		if len(item.Questions) > 0 {
			c.said.Question = foreign.Text(item.Questions[0].Question, foreign.Long)
		}
	}
}

// tool follows a call. The final message is what was said after the last call began; a change of files has no beginning.
func (c *codex) tool(event string, item codexItem) {
	if !c.open.has(item.ID) {
		name := item.Type
		if item.Tool != "" {
			name = item.Tool
		}
		c.message = ""
		c.toolBegins(item.ID, name)
	}
	if event == "item.completed" {
		c.toolEnds(item.ID)
		c.turn()
	}
}

// turn counts what the model has done: codex calls the whole run a turn.
func (c *codex) turn() { c.said.Turns = min(c.said.Turns+1, foreign.MaxTurns) }

func (c *codex) completed(u codexUsage) {
	c.said.End, c.said.Subtype = EndOK, "turn.completed"
	c.said.Tokens = Tokens{}.plus(Tokens{Input: u.InputTokens, Cached: u.CachedInputTokens, Output: u.OutputTokens})
	c.said.Cumulative = true
	c.noTools()
	c.progress()
	c.concludes(c.message)
}

func (c *codex) failed(text string) {
	e, limit := Error{Text: text, Status: foreign.Status(text)}, (*Limit)(nil)
	var answer codexAnswer
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &answer) == nil && answer.Error.Message != "" {
		e = Error{
			Kind: answer.Error.Type, Text: answer.Error.Message, Status: answer.Status,
			RetryAfter: foreign.Seconds(answer.Error.ResetsInSeconds),
		}
		if at := foreign.Epoch(answer.Error.ResetsAt); !at.IsZero() {
			limit = &Limit{Kind: foreign.Text(answer.Error.Type, foreign.Short), ResetAt: at}
		}
	}
	c.fails(e)
	c.said.Limit = limit
	c.said.TooLong = strings.Contains(e.Text, "ran out of room in the model's context window")
	c.said.SessionLost = codexLost(e.Text)
}

func codexLost(text string) bool {
	return strings.Contains(text, "no rollout found for thread id") || strings.Contains(text, "thread/resume failed")
}

// line hears what is said on stderr.
func (c *codex) line(text string) {
	if codexLost(text) {
		c.fails(Error{Text: text})
		c.said.SessionLost, c.changed = true, true
	}
}
