package task

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestNewStoreRefusesAnEmptyPipeline(t *testing.T) {
	t.Parallel()
	if _, err := NewStore(nil, StoreConfig{Pipelines: Pipelines{{}}}); err == nil {
		t.Error("a store takes an empty pipeline")
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")) + rapid.StringN(0, 30, -1).Draw(t, "text")
		limit := rapid.IntRange(0, 80).Draw(t, "limit")
		if got := Clean(text, limit); len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Fatalf("%q", got)
		}
	})
}
