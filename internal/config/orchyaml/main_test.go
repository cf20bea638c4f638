package orchyaml_test

import (
	"os"
	"path/filepath"
	"testing"

	"orch/internal/config/orchyaml"
	"orch/internal/stage/prompt"
)

func loadFile(path string) (*orchyaml.File, error) {
	return orchyaml.LoadFile(path, prompt.Check)
}

func parseFile(path string, content []byte) (*orchyaml.File, error) {
	return orchyaml.ParseFile(path, content, prompt.Check)
}

func addRepo(path string, entry orchyaml.RepoEntry) error {
	return orchyaml.AddRepo(path, entry, prompt.Check)
}

// write puts content into a file of a new directory and answers its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
