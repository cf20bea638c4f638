package transcript

import (
	"encoding/json"
	"strconv"
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
)

// opencode reads `opencode run --format json --print-logs`: its events, and on stderr what it does about limits.
type opencode struct {
	*state
	message string
}

type opencodeEvent struct {
	Type      string        `json:"type"`
	SessionID string        `json:"sessionID"` //nolint:tagliatelle // the program's spelling
	Reason    string        `json:"reason"`
	Rejected  []string      `json:"rejected"`
	Part      opencodePart  `json:"part"`
	Error     opencodeError `json:"error"`
}

type opencodePart struct {
	Text   string         `json:"text"`
	Tool   string         `json:"tool"`
	Reason string         `json:"reason"`
	Cost   foreign.Number `json:"cost"`
	Tokens opencodeTokens `json:"tokens"`
	State  struct {
		Status string `json:"status"`
		Input  struct {
			Questions []struct {
				Question string `json:"question"`
			} `json:"questions"`
		} `json:"input"`
	} `json:"state"`
}

// opencodeTokens are those of one step; Input is without what was cached.
type opencodeTokens struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     struct {
		Read  int64 `json:"read"`
		Write int64 `json:"write"`
	} `json:"cache"`
}

// opencodeError has its text in data, from version 2 on beside its type.
type opencodeError struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Data    struct {
		Message         string            `json:"message"`
		StatusCode      int               `json:"statusCode"`      //nolint:tagliatelle // the program's spelling
		ResponseHeaders map[string]string `json:"responseHeaders"` //nolint:tagliatelle // the program's spelling
		ResponseBody    string            `json:"responseBody"`    //nolint:tagliatelle // the program's spelling
	} `json:"data"`
}

func (*opencode) wanted() any { return opencodeEvent{} }

func (o *opencode) event(raw []byte) bool {
	var e opencodeEvent
	if !line.Decode(raw, &e) {
		return false
	}
	switch e.Type {
	case "step_start": // it comes with the first byte of an answer
		o.goesOn()
	case "tool_use":
		o.answers()
		o.tool(e.Part)
	case "text":
		o.answers()
		o.message = e.Part.Text
	case "step_finish":
		o.answers()
		o.step(e.Part)
	case "error":
		o.failed(e.Error)
	case "done":
		o.done(e)
	default:
		return true
	}
	o.session(e.SessionID, "")
	o.changed = true
	return true
}

func (o *opencode) answers() {
	o.said.Begun = true
	o.goesOn()
}

// goesOn notes that what ended before has not ended.
func (o *opencode) goesOn() {
	o.said.End, o.said.Subtype = EndNone, ""
	o.progress()
}

// tool takes a call that has ended: the stream doesn't tell of one that is in flight.
func (o *opencode) tool(p opencodePart) {
	o.message = ""
	o.said.Tool = foreign.Text(p.Tool, foreign.Short)
	if asked := p.State.Input.Questions; p.Tool == "question" && p.State.Status == "error" && len(asked) > 0 {
		o.said.Question = foreign.Text(asked[0].Question, foreign.Long)
	}
}

func (o *opencode) step(p opencodePart) {
	o.said.Turns = min(o.said.Turns+1, foreign.MaxTurns)
	t := p.Tokens
	o.said.Tokens = o.said.Tokens.plus(Tokens{
		Input:  foreign.Tokens(t.Input) + foreign.Tokens(t.Cache.Read) + foreign.Tokens(t.Cache.Write),
		Cached: t.Cache.Read,
		Output: foreign.Tokens(t.Output) + foreign.Tokens(t.Reasoning),
	})
	if usd := p.Cost.USD(); usd != nil {
		if o.said.CostUSD != nil {
			*usd = min(*usd+*o.said.CostUSD, foreign.MaxCost)
		}
		o.said.CostUSD = usd
	}
	o.said.Subtype = foreign.Text(p.Reason, foreign.Short)
	if p.Reason == "stop" {
		o.said.End = EndOK
		o.concludes(o.message)
	}
}

func (o *opencode) failed(e opencodeError) {
	last := Error{Kind: e.Name + e.Type, Text: e.Data.Message, Status: e.Data.StatusCode}
	if last.Text == "" {
		last.Text = e.Message
	}
	if last.Status == 0 {
		last.Status = foreign.Status(last.Text)
	}
	for name, value := range e.Data.ResponseHeaders {
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch strings.ToLower(name) {
		case "retry-after-ms":
			last.RetryAfter = foreign.Seconds(n / 1000)
		case "retry-after":
			if last.RetryAfter == 0 {
				last.RetryAfter = foreign.Seconds(n)
			}
		}
	}
	for _, more := range opencodeBody(e.Data.ResponseBody) {
		if more != "" && !strings.Contains(last.Text, more) {
			last.Text += " (" + more + ")"
		}
	}
	o.said.End, o.said.Subtype = EndError, ""
	o.fails(last)
	o.said.TooLong = e.Name == "ContextOverflowError"
}

// opencodeBody is what the provider itself called the error, and what it said.
func opencodeBody(body string) []string {
	var answer struct {
		Error struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(body), &answer) // what of it fits is enough
	if answer.Error.Type == "" {
		answer.Error.Type = answer.Error.Code
	}
	return []string{answer.Error.Type, answer.Error.Message}
}

func (o *opencode) done(e opencodeEvent) {
	for _, tool := range e.Rejected {
		o.denied(tool)
	}
	if o.said.End != EndNone {
		return
	}
	o.said.End, o.said.Subtype = EndOK, foreign.Text(e.Reason, foreign.Short)
	if o.said.Error != nil {
		o.said.End = EndError
	} else {
		o.concludes(o.message)
	}
}

// line hears what is said on stderr: a limit is told nowhere else, and opencode sleeps until it is over.
func (o *opencode) line(text string) {
	switch {
	case strings.Contains(text, "level=ERROR") && strings.Contains(text, `message="stream error"`):
		if !strings.Contains(text, "small=false") {
			return // the model that thinks of a title
		}
		kind, words, found := strings.Cut(quoted(text, "error.error="), ": ")
		if !found {
			kind, words = "", kind
		}
		o.fails(Error{Kind: kind, Text: words, Status: foreign.Status(words)})
		if id, _, _ := strings.Cut(quoted(text, "session.id="), " "); o.said.SessionID == "" {
			o.session(id, "")
		}
	case strings.Contains(text, "Session not found"):
		o.fails(Error{Kind: "NotFoundError", Text: text})
		o.said.SessionLost = true
	case strings.HasPrefix(text, "! permission requested: "):
		tool, _, _ := strings.Cut(strings.TrimPrefix(text, "! permission requested: "), " ")
		o.denied(strings.TrimSuffix(tool, ";"))
	default:
		return
	}
	o.changed = true
}

// quoted is the value of a field in a line of a log.
func quoted(line, field string) string {
	_, value, _ := strings.Cut(line, field)
	if prefix, err := strconv.QuotedPrefix(value); err == nil {
		if text, err := strconv.Unquote(prefix); err == nil {
			return text
		}
	}
	return strings.Trim(value, `"`)
}
