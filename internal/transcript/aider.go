package transcript

import (
	"regexp"
	"strconv"
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/report"
)

// aider reads what aider prints for people: it has no output for machines, so nothing of it says that it has ended well.
type aider struct {
	*state
	usage, price, retry *regexp.Regexp
	report              *report.Report // orch's line, if nothing was said after it
}

func newAider(s *state) *aider {
	return &aider{
		state: s,
		usage: regexp.MustCompile(`^Tokens: ([\d.,]+[kM]?) sent(?:, ([\d.,]+[kM]?) cache write)?(?:, ([\d.,]+[kM]?) cache hit)?, ([\d.,]+[kM]?) received\.`),
		price: regexp.MustCompile(`(?:^| )Cost: \$[\d.]+ message, \$([\d.]+) session\.`),
		retry: regexp.MustCompile(`^Retrying in ([\d.]+) seconds`),
	}
}

func (*aider) wanted() any { return report.Line{} }

func (a *aider) event(raw []byte) bool {
	a.report = nil
	if said := report.Read(raw); said != nil {
		a.report = said.OfAgent()
	}
	return true
}

func (a *aider) line(text string) {
	if kind, words, ok := litellm(text); ok {
		a.fails(Error{Kind: kind, Text: words, Status: foreign.Status(words)})
		a.said.TooLong = kind == "ContextWindowExceededError"
	} else if strings.HasPrefix(text, "Insufficient credits with the API provider") {
		a.fails(Error{Kind: "APIError", Text: text, Status: 402})
	} else if found := a.retry.FindStringSubmatch(text); found != nil && a.said.Error != nil {
		again := *a.said.Error
		again.RetryAfter = foreign.Seconds(amount(found[1]))
		a.said.Error = &again
	} else if !a.told(text) {
		a.report = nil
		return
	}
	a.changed = true
}

// told takes what aider tells after each answer of the model.
func (a *aider) told(text string) bool {
	used, priced := a.usage.FindStringSubmatch(text), a.price.FindStringSubmatch(text)
	if used != nil {
		a.said.Begun = true
		a.said.Turns = min(a.said.Turns+1, foreign.MaxTurns)
		a.said.Tokens = a.said.Tokens.plus(Tokens{
			Input: int64(amount(used[1])), Cached: int64(amount(used[3])), Output: int64(amount(used[4])),
		})
		a.progress()
		if a.said.Report, a.said.Summary = a.report, ""; a.report != nil {
			a.said.Summary = a.report.Summary
		}
	}
	if priced != nil {
		a.said.CostUSD = foreign.USD(amount(priced[1]))
	}
	return used != nil || priced != nil
}

// litellm reads a line of the library that aider calls models with, and of aider about it.
func litellm(text string) (kind, words string, ok bool) {
	if rest, found := strings.CutPrefix(text, "litellm."); found {
		kind, words, ok = strings.Cut(rest, ":")
		return kind, strings.TrimSpace(words), ok && strings.HasSuffix(kind, "Error") || kind == "Timeout"
	}
	switch {
	case strings.HasPrefix(text, "The API provider is not able to authenticate you."):
		return "AuthenticationError", text, true
	case strings.HasPrefix(text, "The API provider has rate limited you."):
		return "RateLimitError", text, true
	case strings.HasPrefix(text, "The API provider's servers are down or overloaded."):
		return "ServiceUnavailableError", text, true
	case strings.HasPrefix(text, "Permission was denied. Check your API key"):
		return "PermissionDeniedError", text, true
	default:
		return "", "", false
	}
}

// amount reads 345, 2.1k and 1,234; zero for what is none.
func amount(text string) float64 {
	factor := 1.0
	if rest, ok := strings.CutSuffix(text, "k"); ok {
		text, factor = rest, 1e3
	} else if rest, ok := strings.CutSuffix(text, "M"); ok {
		text, factor = rest, 1e6
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		return 0
	}
	return min(n*factor, foreign.MaxTokens)
}
