// Package form checks the fields of a request.
package form

import (
	"fmt"
	"strings"
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

// Text checks a string: PostgreSQL stores no NUL, and lengths are in bytes.
func (c *Checker) Text(field, text string, limit int) {
	c.Check(len(text) <= limit, field, fmt.Sprintf("must not be longer than %d bytes", limit))
	c.Check(!strings.ContainsRune(text, 0) && utf8.ValidString(text), field, "must be UTF-8 text without NUL")
}

// Line checks a string that must be one line.
func (c *Checker) Line(field, text string, limit int) {
	c.Text(field, text, limit)
	c.Check(!strings.ContainsAny(text, "\r\n"), field, "must be one line")
}
