// Package testagent has programs that behave as agents do, for tests: recorded transcripts, and scripts that print them.
package testagent

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
)

//go:embed recorded
var recorded embed.FS

// Names are the recorded transcripts of a format, such as claude.
func Names(tb testing.TB, format string) []string {
	tb.Helper()
	entries, err := fs.ReadDir(recorded, path.Join("recorded", format))
	if err != nil {
		tb.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	slices.Sort(names)
	return names
}

// Recorded is all that a program printed in a run, stdout and stderr in their order.
func Recorded(tb testing.TB, format, name string) []byte {
	tb.Helper()
	raw, err := recorded.ReadFile(path.Join("recorded", format, name+".txt"))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
