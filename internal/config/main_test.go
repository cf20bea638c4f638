package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/config"
)

// The tests set what they are about; what whoever runs them has set is none of it.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, config.Prefix) {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
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

func load(t *testing.T, overrides map[string]string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(overrides)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
