package outcome

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"

	"orch/internal/transcript"
)

// lastLines is how many plain lines of the end are looked at. Higher up it is less likely that a line is the reason.
const lastLines = 20

// standing judges by the error that nothing followed, and by a limit that the format told of.
func (e evidence) standing() (Judgement, bool) {
	said := transcript.Error{}
	if e.said.Error != nil {
		said = *e.said.Error
	}
	outcome := Quota
	if e.said.Limit == nil || slices.Contains(authKinds(), said.Kind) {
		outcome = refusal(said)
	}
	if outcome == "" {
		return Judgement{}, false
	}
	return Judgement{Outcome: outcome, Detail: firstOf(said.Text, said.Kind), ResetAt: e.reset(outcome, said)}, true
}

// reset is when a refusal ends, zero if nobody knows.
func (e evidence) reset(outcome Outcome, said transcript.Error) time.Time {
	if !outcome.UntilReset() {
		return time.Time{}
	}
	if e.said.Limit != nil && !e.said.Limit.ResetAt.IsZero() {
		return e.said.Limit.ResetAt
	}
	if said.RetryAfter > 0 {
		return e.then.Add(said.RetryAfter)
	}
	at, _ := ResetTime(said.Text, e.then, e.tz)
	return at
}

// The words of formats for errors that say what to do.
func authKinds() []string {
	return []string{
		"authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error",
		"FatalAuthenticationError", "UnauthorizedError", "ForbiddenError", "AccountSuspendedError", "ValidationRequiredError",
		"ProviderAuthError",
	}
}

func quotaKinds() []string {
	return []string{"billing_error", "TerminalQuotaError", "FreeUsageLimitError", "GoUsageLimitError", "usage_limit_reached", "insufficient_quota"}
}

func rateKinds() []string {
	return []string{"rate_limit", "rate_limit_exceeded", "rate_limit_error", "overloaded", "overloaded_error", "RetryableQuotaError"}
}

// refusal is the outcome of an error that isn't the work's fault; empty for others.
func refusal(said transcript.Error) Outcome {
	const billing, tooMany, overloaded = 402, 429, 529
	status := func(codes ...int) bool { return slices.Contains(codes, said.Status) || hasCode(said.Text, codes...) }
	switch {
	case slices.Contains(authKinds(), said.Kind), matches(authText, said.Text):
		return Auth
	case slices.Contains(quotaKinds(), said.Kind):
		return Quota
	case said.Kind == "RetryableQuotaError":
		return RateLimited // its text speaks of a quota
	case matches(quotaText, said.Text):
		return Quota
	case status(401, 403):
		return Auth
	case status(billing):
		return Quota
	case slices.Contains(rateKinds(), said.Kind), status(tooMany, overloaded), matches(rateText, said.Text):
		return RateLimited
	default:
		return ""
	}
}

// What providers and programs write. Only errors are compared with it, never what a model says.
const (
	authText = `please run /login|(?:invalid|incorrect) api key|api key not valid|oauth token (?:revoked|has expired)|` +
		`organization has been disabled|missing environment variable|refresh token|unauthenticated|set an auth method`
	quotaText = `hit your (?:[\w. ]{1,30} )?limit|reached your [\w. ]{1,30} limit|(?:usage|monthly|weekly|daily)[\w ]{0,20} limit|` +
		`usage[ _]limit[ _]reached|limit exhausted|free usage exceeded|quota exceeded|exceeded your [\w ]{0,20}quota|daily quota|` +
		`exhausted your [\w ]{0,20}quota|insufficient[ _]quota|limit: 0\b|spend cap|upgrade to plus|` +
		`out of credits|insufficient credits|credit balance is too low`
	rateText = `rate[ _-]?limit|too many requests|at capacity|high demand|overloaded|temporarily limiting|resource_exhausted`
)

func matches(pattern, text string) bool {
	return text != "" && regexp.MustCompile(`(?i)`+pattern).MatchString(text)
}

// tail judges a failed run by its last plain line that speaks of a refusal.
func (e evidence) tail() (Judgement, bool) {
	for i, line := range slices.Backward(e.lines) {
		if outcome := e.refusalIn(line); outcome != "" {
			rest := strings.Join(e.lines[i:], "\n") // a header may stand below
			return Judgement{Outcome: outcome, Detail: line, ResetAt: e.reset(outcome, transcript.Error{Text: rest})}, true
		}
	}
	return Judgement{}, false
}

func (e evidence) refusalIn(line string) Outcome {
	switch e.format {
	case transcript.Command:
		return commandRefusal(line)
	case transcript.Aider:
		return aiderRefusal(line)
	default:
		return refusal(transcript.Error{Text: line})
	}
}

// commandRefusal reads a line of a program that nothing is known of, and that may print whatever the agent works on.
// So a word alone isn't enough.
func commandRefusal(line string) Outcome {
	switch {
	case matches(`disk quota`, line):
		return ""
	case matches(`please run /login|invalid api key|api key not valid`, line):
		return Auth
	case matches(`\b(?:want(?:ed|s)?|expect(?:ed|s)?|assert\w*|(?-i:FAIL(?:ED)?))\b`, line):
		return "" // a test tells of what it tests
	case hasCode(line, 401) && matches(`unauthorized|authentication|api.?key`, line):
		return Auth
	case matches(`hit your (?:\w+ )?limit|usage limit (?:reached|exceeded)|insufficient[ _]quota|quota (?:exceeded|exhausted)|`+
		`exceeded your (?:\w+ )?quota|credit balance is too low|out of credits|insufficient credits`, line):
		return Quota
	case hasCode(line, 429) && matches(`too many requests|http|status|error|rate`, line),
		matches(`rate limit (?:exceeded|reached)|rate limited`, line):
		return RateLimited
	default:
		return ""
	}
}

// aiderRefusal reads lines that aider begins itself: the answers of the model are in the same stream.
func aiderRefusal(line string) Outcome {
	switch {
	case matches(`^litellm\.(?:AuthenticationError|PermissionDeniedError)`, line):
		return Auth
	case matches(`^insufficient credits with the api provider`, line):
		return Quota
	case matches(`^litellm\.RateLimitError`, line):
		if matches(quotaText, line) {
			return Quota
		}
		return RateLimited
	default:
		return ""
	}
}

// aiderWentOn recognizes lines that aider writes once its model has answered.
func aiderWentOn(line string) bool {
	return matches(`^(?:tokens: |applied edit to |commit [0-9a-f]{7})`, line)
}

// byText judges a program that has no event for its end.
func (e evidence) byText() Judgement {
	if e.exit.Signal != "" || e.exit.Code == nil {
		return Judgement{Outcome: e.byExit(), Detail: e.exit.Error}
	}
	if j, said := e.reported(); said {
		return j
	}
	failed := *e.exit.Code != 0
	if e.format == transcript.Aider && !failed {
		// It exits with 0 when its provider has refused everything, too.
		failed = !e.said.Begun && !slices.ContainsFunc(e.lines, aiderWentOn) || aiderFailedLast(e.lines)
	}
	if !failed {
		return Judgement{Outcome: OK}
	}
	if j, refused := e.tail(); refused {
		return j
	}
	j := Judgement{Outcome: e.byExit()}
	if j.Outcome == OK {
		j.Outcome, j.Detail = AgentFailed, "aider ended without an answer of its model"
	}
	return j
}

// aiderFailedLast reports whether nothing good followed a refusal.
func aiderFailedLast(lines []string) bool {
	for _, line := range slices.Backward(lines) {
		switch {
		case aiderWentOn(line):
			return false
		case aiderRefusal(line) != "":
			return true
		}
	}
	return false
}

// hasCode reports whether a text names one of the HTTP codes: as a number of its own, not as a part of a longer one, of
// an amount, a version, an address or an identifier.
func hasCode(text string, codes ...int) bool {
	for at := 0; at < len(text); {
		if !digit(text[at]) {
			at++
			continue
		}
		end := at
		for end < len(text) && (digit(text[end]) || strings.IndexByte(".,", text[end]) >= 0) {
			end++
		}
		word := strings.TrimRight(text[at:end], ".,")
		if len(word) == 3 && slices.Contains(codes, number(word)) && standsAlone(text, at, end) {
			return true
		}
		at = end
	}
	return false
}

// standsAlone reports whether text[from:to] isn't a part of a longer word.
func standsAlone(text string, from, to int) bool {
	if to < len(text) && partOfWord(text[to]) {
		return false
	}
	if from == 0 {
		return true
	}
	if text[from-1] == ':' { // a field's value, but no port
		return from < 2 || !digit(text[from-2])
	}
	return !partOfWord(text[from-1]) && strings.IndexByte("$.,", text[from-1]) < 0
}

func partOfWord(c byte) bool {
	return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("_-/%", c) >= 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number is the value of three digits, -1 of anything else.
func number(word string) int {
	value := 0
	for i := range len(word) {
		if !digit(word[i]) {
			return -1
		}
		value = value*10 + int(word[i]-'0')
	}
	return value
}

// plainLines are the last lines of an agent's output that aren't JSON, without their colours.
func plainLines(tail []byte) []string {
	if len(tail) >= TailBytes {
		if at := bytes.IndexByte(tail, '\n'); at >= 0 {
			tail = tail[at+1:] // the first line may be torn
		} else {
			tail = nil
		}
	}
	colour := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	var lines []string
	for line := range strings.SplitSeq(strings.ToValidUTF8(string(tail), ""), "\n") {
		line = strings.TrimSpace(strings.ReplaceAll(colour.ReplaceAllString(line, ""), "\x00", ""))
		switch {
		case line == transcript.SetupDone:
			lines = nil
		case line != "" && line[0] != '{':
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-lastLines):]
}
