package transcript_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"orch/internal/testagent"
	"orch/internal/transcript"
)

var update = flag.Bool("update", false, "write golden files anew")

func formats() []transcript.Format {
	return []transcript.Format{
		transcript.Claude, transcript.Codex, transcript.Gemini, transcript.OpenCode, transcript.Aider, transcript.Command,
	}
}

// read reads a recorded transcript.
func read(t *testing.T, f transcript.Format, name string) transcript.Said {
	t.Helper()
	said, err := transcript.Read(f, bytes.NewReader(testagent.Recorded(t, string(f), name)))
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestRead_EachDocumentedExample(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			all := map[string]transcript.Said{}
			for _, name := range testagent.Names(t, string(f)) {
				all[name] = read(t, f, name)
			}
			golden(t, string(f), all)
		})
	}
}

func golden(t *testing.T, name string, got any) {
	t.Helper()
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".golden.json")
	if *update {
		if err := os.WriteFile(path, encoded.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, encoded.Bytes()) {
		t.Errorf("%s differs (write it anew with -update, then look at the difference):\n%s", path, encoded.Bytes())
	}
}
