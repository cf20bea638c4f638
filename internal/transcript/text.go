package transcript

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of texts in a Said, in bytes of their JSON: all of them together stay below 32 KiB.
const (
	shortText = 128
	errorText = 4 << 10
	longText  = 4 << 10
	maxDenied = 16
)

const (
	maxTokens = 1 << 50
	maxTurns  = 1 << 30
	maxCost   = 99_999
	maxWait   = 60 * 24 * time.Hour
	// lastSecond is the end of what a date in JSON can say.
	lastSecond = 253402300799
)

// clip makes a text that JSON, a database and a terminal take, with at most limit bytes once it is JSON.
func clip(text string, limit int) string {
	var kept strings.Builder
	for _, r := range strings.TrimSpace(text) {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' {
			continue
		}
		if limit -= encoded(r); limit < 0 {
			break
		}
		kept.WriteRune(r)
	}
	return strings.TrimSpace(kept.String())
}

// encoded is the length of a character in JSON as Go writes it.
func encoded(r rune) int {
	switch r {
	case '"', '\\', '\n', '\t':
		return 2
	case '<', '>', '&', '\u2028', '\u2029':
		return 6
	default:
		return utf8.RuneLen(r)
	}
}

// printable is a line as people read it: without escape sequences, control characters and what isn't UTF-8.
func printable(raw []byte) string {
	var kept strings.Builder
	text := string(raw)
	for text != "" {
		if rest, ok := afterEscape(text); ok {
			text = rest
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		if r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) {
			kept.WriteRune(r)
		}
	}
	return strings.TrimSpace(kept.String())
}

// afterEscape skips a sequence as terminals know it: ESC [ parameters letter.
func afterEscape(text string) (string, bool) {
	rest, ok := strings.CutPrefix(text, "\x1b[")
	if !ok {
		return "", false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return "", true
	}
	return rest[end+1:], true
}

// epoch reads seconds or milliseconds since 1970; zero for what is no date.
func epoch(n float64) time.Time {
	if n > lastSecond {
		n /= 1000
	}
	if !(n > 0 && n <= lastSecond) {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC()
}

// seconds reads a duration; none for what makes no sense.
func seconds(n float64) time.Duration {
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n, maxWait.Seconds()) * float64(time.Second))
}

// tokens reads a count of tokens.
func tokens(n int64) int64 { return min(max(n, 0), maxTokens) }

func (t Tokens) plus(more Tokens) Tokens {
	return Tokens{
		Input:  tokens(t.Input + tokens(more.Input)),
		Cached: tokens(t.Cached + tokens(more.Cached)),
		Output: tokens(t.Output + tokens(more.Output)),
	}
}

// bounded keeps the beginning and the end of a text that grows.
func bounded(text string) string {
	if len(text) <= headKept+2*tailKept {
		return text
	}
	return text[:headKept] + "…" + text[len(text)-tailKept:]
}

// statusIn finds an HTTP status that a text names as one; zero when there is none.
func statusIn(text string) int {
	for {
		_, rest, found := strings.Cut(text, "status")
		if !found {
			return 0
		}
		text = rest
		rest = strings.TrimLeft(rest, ": ")
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if code, err := strconv.Atoi(rest[:digits]); err == nil && code >= 400 && code < 600 {
			return code
		}
	}
}
