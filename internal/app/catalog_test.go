package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"orch/internal/config"
)

func TestLoadFile(t *testing.T) {
	t.Parallel()
	data := func(variable, value string) config.Data {
		cfg, _, err := config.Load(map[string]string{variable: value})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Data
	}
	root := t.TempDir()
	file, err := loadFile(data("ORCH_ROOT", root))
	if err != nil || len(file.Repos) != 0 || file.Path != filepath.Join(root, "orch.yaml") {
		t.Errorf("without a file: %+v, %v", file, err)
	}
	path := filepath.Join(root, "x.yaml")
	if _, err := loadFile(data("ORCH_CONFIG", path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was asked for: %v", err)
	}
	content := "repos: [{name: demo, path: /x, test: none}]\nagents: {a: {preset: command, command: x}}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err = loadFile(data("ORCH_CONFIG", path))
	if err != nil || len(file.Repos) != 1 || file.RepoNames()[0] != "demo" {
		t.Errorf("%+v, %v", file, err)
	}
}
