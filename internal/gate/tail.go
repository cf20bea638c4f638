package gate

import (
	"strings"
	"unicode/utf8"
)

// Tail returns at most limit bytes of the end of s, as text that a database and a prompt can hold: valid UTF-8, no
// NUL, not cut inside a character.
func Tail(s string, limit int) string {
	s = cutFront(s, limit)
	s = strings.ReplaceAll(s, "\x00", "")
	// A replaced byte grows to three, so the limit is applied again.
	return cutFront(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

func cutFront(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	// A character has at most three bytes after its first; more of them in a row are no cut character.
	cut := 0
	for cut < min(utf8.UTFMax-1, len(s)) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	return s[cut:]
}
