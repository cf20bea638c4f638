// Package form checks the fields of a request.
package form

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"orch/api"
)

// Checker collects what is wrong with a request, field by field, so that a client learns it all at once.
type Checker struct {
	Wrong []api.FieldError
}

// Check notes what is allowed in a field unless ok.
func (c *Checker) Check(ok bool, field, allowed string) {
	if !ok {
		c.Wrong = append(c.Wrong, api.FieldError{Field: field, Message: allowed})
	}
}

// Text checks a string; lengths are in bytes.
func (c *Checker) Text(field, text string, limit int) {
	c.Check(len(text) <= limit, field, fmt.Sprintf("must not be longer than %d bytes", limit))
	c.Check(Storable(text), field, "must be UTF-8 text without NUL")
}

// Storable says whether PostgreSQL takes a text: it must be UTF-8 and hold no NUL.
func Storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Line checks a string that must be one line.
func (c *Checker) Line(field, text string, limit int) {
	c.Text(field, text, limit)
	c.Check(!strings.ContainsAny(text, "\r\n"), field, "must be one line")
}

// Plain checks a string that must be one line of nothing but characters to read: it's shown on terminals.
func (c *Checker) Plain(field, text string, limit int) {
	c.Check(len(text) <= limit, field, fmt.Sprintf("must not be longer than %d bytes", limit))
	c.Check(Readable(text), field, "must be one line of UTF-8 text without control characters")
}

// Readable says whether a text is UTF-8 and holds no control characters.
func Readable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
