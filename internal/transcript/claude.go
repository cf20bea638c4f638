package transcript

import (
	"encoding/json"
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
)

// claude reads `claude -p --output-format stream-json --verbose`.
type claude struct {
	*state
	message string // id of the main loop's last message: several lines may share it
	earlier Tokens // of messages before it
	seen    Tokens // with it
	own     Tokens // of the results so far, where they tell what is new since the one before
	ownUSD  float64
}

type claudeEvent struct {
	Type            string  `json:"type"`
	Subtype         string  `json:"subtype"`
	SessionID       string  `json:"session_id"`
	Model           string  `json:"model"`
	ParentToolUseID string  `json:"parent_tool_use_id"`
	Error           string  `json:"error"`
	ErrorStatus     int     `json:"error_status"`
	RetryDelayMS    float64 `json:"retry_delay_ms"`
	ToolName        string  `json:"tool_name"`

	Message       claudeMessage `json:"message"`
	RateLimitInfo claudeLimit   `json:"rate_limit_info"`

	IsError           bool                   `json:"is_error"`
	APIErrorStatus    int                    `json:"api_error_status"`
	TerminalReason    string                 `json:"terminal_reason"`
	StartupFailure    string                 `json:"startup_failure_reason"`
	Result            string                 `json:"result"`
	Errors            []string               `json:"errors"`
	NumTurns          int                    `json:"num_turns"`
	TotalCostUSD      foreign.Number         `json:"total_cost_usd"`
	APIErrorType      string                 `json:"api_error_type"`
	ModelUsage        map[string]claudeModel `json:"modelUsage"` //nolint:tagliatelle // the program's spelling
	OwnUsage          map[string]claudeModel `json:"model_usage_since_last_result"`
	PermissionDenials *[]claudeDenial        `json:"permission_denials"`
}

type claudeMessage struct {
	ID      string       `json:"id"`
	Model   string       `json:"model"`
	Content claudeBlocks `json:"content"`
	Usage   claudeUsage  `json:"usage"`
}

type claudeBlock struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Text      string `json:"text"`
	ToolUseID string `json:"tool_use_id"`
}

// claudeBlocks are a message's content, which may be a text alone.
type claudeBlocks []claudeBlock

// UnmarshalJSON takes anything else for no content.
func (b *claudeBlocks) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*b = claudeBlocks{{Type: "text", Text: text}}
		return nil
	}
	var blocks []claudeBlock
	if line.Decode(raw, &blocks) {
		*b = blocks
	}
	return nil
}

type claudeUsage struct {
	InputTokens              int64 `json:"input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
}

type claudeModel struct {
	InputTokens              int64          `json:"inputTokens"`              //nolint:tagliatelle // the program's spelling
	OutputTokens             int64          `json:"outputTokens"`             //nolint:tagliatelle // the program's spelling
	CacheReadInputTokens     int64          `json:"cacheReadInputTokens"`     //nolint:tagliatelle // the program's spelling
	CacheCreationInputTokens int64          `json:"cacheCreationInputTokens"` //nolint:tagliatelle // the program's spelling
	CostUSD                  foreign.Number `json:"costUSD"`                  //nolint:tagliatelle // the program's spelling
}

// claudeLimit is the state of an account's limit.
type claudeLimit struct {
	Status         string  `json:"status"`
	ResetsAt       float64 `json:"resetsAt"`       //nolint:tagliatelle // the program's spelling
	RateLimitType  string  `json:"rateLimitType"`  //nolint:tagliatelle // the program's spelling
	OverageStatus  string  `json:"overageStatus"`  //nolint:tagliatelle // the program's spelling
	IsUsingOverage bool    `json:"isUsingOverage"` //nolint:tagliatelle // the program's spelling
	OverageInUse   bool    `json:"overageInUse"`   //nolint:tagliatelle // the program's spelling
}

type claudeDenial struct {
	ToolName  string `json:"tool_name"`
	ToolInput struct {
		Questions []struct {
			Question string `json:"question"`
		} `json:"questions"`
	} `json:"tool_input"`
}

// claudeAsks is the tool by which claude asks its user; claudeSynthetic is the model of messages that no model wrote.
const (
	claudeAsks      = "AskUserQuestion"
	claudeSynthetic = "<synthetic>"
	claudeLost      = "No conversation found with session ID"
	claudeTooLong   = "Prompt is too long"
)

func (*claude) wanted() any { return claudeEvent{} }

func (c *claude) event(raw []byte) bool {
	var e claudeEvent
	if !line.Decode(raw, &e) {
		return false
	}
	switch e.Type {
	case "system":
		c.system(e)
	case "assistant":
		c.assistant(e)
	case "user":
		c.user(e)
	case "rate_limit_event":
		c.rateLimit(e.RateLimitInfo)
	case "result":
		c.result(e)
	default:
		return true
	}
	c.changed = true
	return true
}

func (c *claude) system(e claudeEvent) {
	switch e.Subtype {
	case "init":
		c.session(e.SessionID, e.Model)
	case "api_retry":
		c.fails(Error{Kind: e.Error, Status: e.ErrorStatus, RetryAfter: foreign.Seconds(e.RetryDelayMS / 1000)})
	case "permission_denied":
		c.denied(e.ToolName)
	}
}

func (c *claude) assistant(e claudeEvent) {
	c.session(e.SessionID, "")
	if e.Error != "" || e.Message.Model == claudeSynthetic {
		c.fails(Error{Kind: e.Error, Text: e.Message.Content.text(), Status: e.APIErrorStatus})
		return
	}
	c.said.Begun = true
	c.progress()
	if e.ParentToolUseID != "" {
		return // a subagent: its calls end before the tool that it is
	}
	c.counts(e.Message)
	for _, block := range e.Message.Content {
		if block.Type == "tool_use" {
			c.toolBegins(block.ID, block.Name)
		}
	}
}

// counts adds up what the main loop's messages say of tokens, until the result says it better.
func (c *claude) counts(m claudeMessage) {
	if m.ID == "" || m.ID != c.message {
		c.message = m.ID
		c.earlier = c.seen
		c.said.Turns = min(c.said.Turns+1, foreign.MaxTurns)
	}
	u := m.Usage
	cached := foreign.Tokens(u.CacheReadInputTokens)
	c.seen = c.earlier.plus(Tokens{
		Input:  foreign.Tokens(u.InputTokens) + cached + foreign.Tokens(u.CacheCreationInputTokens),
		Cached: cached, Output: u.OutputTokens,
	})
	if c.said.End == EndNone {
		c.said.Tokens = c.seen
	}
}

func (c *claude) user(e claudeEvent) {
	if e.ParentToolUseID != "" {
		return
	}
	for _, block := range e.Message.Content {
		if block.Type == "tool_result" {
			c.toolEnds(block.ToolUseID)
		}
	}
}

// rateLimit notes a limit that stops the account: one that overage makes up for doesn't.
func (c *claude) rateLimit(l claudeLimit) {
	paid := l.IsUsingOverage || l.OverageInUse || strings.HasPrefix(l.OverageStatus, "allowed")
	kind := foreign.Text(l.RateLimitType, foreign.Short)
	switch {
	case l.Status == "rejected" && !paid:
		c.said.Limit = &Limit{Kind: kind, ResetAt: foreign.Epoch(l.ResetsAt)}
	case l.Status != "" && c.said.Limit != nil && c.said.Limit.Kind == kind:
		c.said.Limit = nil
	}
}

func (c *claude) result(e claudeEvent) {
	c.session(e.SessionID, "")
	c.noTools()
	c.said.Subtype = foreign.Text(e.Subtype, foreign.Short)
	c.totals(e)
	c.denials(e.PermissionDenials)
	if e.Subtype == "success" && !e.IsError {
		c.said.End = EndOK
		c.progress()
		c.concludes(e.Result)
		return
	}
	c.said.End = EndError
	c.failed(e)
}

// failed notes why: an event before the result may have named the kind of error.
func (c *claude) failed(e claudeEvent) {
	if e.Subtype == "success" && e.TerminalReason != "" {
		c.said.Subtype = foreign.Text(e.TerminalReason, foreign.Short)
	}
	last := Error{Kind: e.Error, Text: e.Result, Status: e.APIErrorStatus}
	if last.Text == "" {
		last.Text = strings.Join(e.Errors, "\n")
	}
	if before := c.said.Error; before != nil {
		if last.Kind == "" {
			last.Kind = before.Kind
		}
		if last.Text == "" {
			last.Text = before.Text
		}
		if last.Status == 0 {
			last.Status = before.Status
		}
		last.RetryAfter = before.RetryAfter
	}
	for _, kind := range []string{e.StartupFailure, c.said.Subtype} {
		if last.Kind == "" {
			last.Kind = kind
		}
	}
	if e.APIErrorType != "" && !strings.Contains(last.Text, e.APIErrorType) {
		last.Text += " (" + e.APIErrorType + ")"
	}
	c.fails(last)
	c.said.TooLong = c.said.Subtype == "prompt_too_long" || strings.Contains(last.Text, claudeTooLong)
	c.said.SessionLost = strings.Contains(last.Text, claudeLost)
}

// totals takes the result's sums. A result of nothing after messages that used tokens comes from a crash.
func (c *claude) totals(e claudeEvent) {
	if e.NumTurns > 0 && c.said.Begun {
		c.said.Turns = min(e.NumTurns, foreign.MaxTurns)
	}
	if len(e.OwnUsage) > 0 {
		own, usd := claudeSum(e.OwnUsage)
		c.own, c.ownUSD = c.own.plus(own), min(c.ownUSD+usd, foreign.MaxCost)
		total := c.ownUSD
		c.said.Tokens, c.said.CostUSD = c.own, &total
		return
	}
	sum, _ := claudeSum(e.ModelUsage)
	usd := e.TotalCostUSD.USD()
	if usd == nil || *usd == 0 && sum == (Tokens{}) && c.said.Tokens != (Tokens{}) {
		return
	}
	c.said.CostUSD, c.said.Cumulative, c.said.Seen = usd, true, c.seen
	if sum != (Tokens{}) {
		c.said.Tokens = sum
	}
}

func claudeSum(models map[string]claudeModel) (sum Tokens, usd float64) {
	for _, m := range models {
		cached := foreign.Tokens(m.CacheReadInputTokens)
		sum = sum.plus(Tokens{
			Input:  foreign.Tokens(m.InputTokens) + cached + foreign.Tokens(m.CacheCreationInputTokens),
			Cached: cached, Output: m.OutputTokens,
		})
		if more := m.CostUSD.USD(); more != nil {
			usd = min(usd+*more, foreign.MaxCost)
		}
	}
	return sum, usd
}

func (c *claude) denials(list *[]claudeDenial) {
	if list == nil {
		return
	}
	c.said.Denied = nil
	for _, d := range *list {
		if d.ToolName == claudeAsks && len(d.ToolInput.Questions) > 0 {
			c.said.Question = foreign.Text(d.ToolInput.Questions[0].Question, foreign.Long)
			continue
		}
		c.denied(d.ToolName)
	}
}

// line hears what is said on stderr.
func (c *claude) line(text string) {
	if strings.Contains(text, claudeLost) {
		c.fails(Error{Text: text})
		c.said.SessionLost, c.changed = true, true
	}
}

func (b claudeBlocks) text() string {
	var texts []string
	for _, block := range b {
		if block.Text != "" {
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}
