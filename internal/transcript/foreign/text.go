package foreign

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of texts, in bytes of their JSON: of a name, and of sentences.
const (
	Short = 128
	Long  = 4 << 10
)

// Text makes a text that JSON, a database and a terminal take, with at most limit bytes once it is JSON.
func Text(text string, limit int) string {
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

// Line is a line as people read it: without escape sequences, control characters and what isn't UTF-8.
func Line(raw []byte) string {
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

// Status finds an HTTP status that a text names as one; zero when there is none.
func Status(text string) int {
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
