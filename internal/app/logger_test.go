package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestJSONLogSpellsDurations(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	NewLogger(&out, slog.LevelInfo, "json").Info("x", slog.Duration("after", 10*time.Minute+1500*time.Microsecond), slog.Int("pid", 7))
	if got := out.String(); !strings.Contains(got, `"after":"10m0.002s","pid":7`) {
		t.Error(got)
	}
}
