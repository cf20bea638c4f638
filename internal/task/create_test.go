package task

import (
	"errors"
	"strings"
	"testing"
)

func TestAdd_Title(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"two\nlines":             "must be one line without control characters",
		"a\x1b[2Jb":              "must be one line without control characters",
		"nul \x00":               "must be one line without control characters",
		" \n":                    "must be UTF-8 text of 1 to 300 bytes",
		"\xff":                   "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("x", 301): "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("ä", 151): "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("ä", 150): "",
		"Do it\n":                "",
	} {
		add := newAdd()
		add.Title = title
		err := add.check()
		got := ""
		if invalid, ok := errors.AsType[*InvalidError](err); ok && invalid.Field == "title" {
			got = invalid.Reason
		}
		if got != want || (want == "") != (err == nil) {
			t.Errorf("%q: %v", title, err)
		}
	}
}
