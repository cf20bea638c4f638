package statement

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

var errNUL = errors.New("PostgreSQL stores no NUL")

// maxText bounds what a row keeps of a text.
const maxText = 8 << 10

// Storable makes a text that PostgreSQL takes: valid UTF-8, no NUL, bounded. The end is kept: it says most.
func Storable(s string) string {
	if len(s) > maxText {
		s = "…" + s[len(s)-maxText:]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// StorableJSON is a value as JSON that PostgreSQL takes.
func StorableJSON(value any) (json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(raw, []byte(`\u0000`)) {
		return nil, errNUL
	}
	return raw, nil
}

// OrNull is NULL for the zero value.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
