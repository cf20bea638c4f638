package redact_test

import (
	"testing"

	"orch/internal/process/redact"
)

// A value that is a frame around next to nothing holds nothing to look for in base64.
func TestFramesWithoutContent(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-----BEGIN-----\n\n-----END-----", "-----BEGIN-----\nab\n-----END-----", "-----\n-----"} {
		const text = "nothing of YWI, eH or else is replaced"
		if got := redact.NewSet([]redact.Secret{{Name: "N", Value: value}}).String(text); got != text {
			t.Errorf("%q: %q", value, got)
		}
	}
}
