package setup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/app/setup"
	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/testgit"
)

func TestAddRepository(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Data: config.Data{File: filepath.Join(t.TempDir(), "orch.yaml")}}
	add := func(name, agent string) (setup.AddedRepository, error) {
		t.Helper()
		r := testgit.New(t, map[string]string{"a": "1\n"})
		return setup.AddRepository(t.Context(), cfg, setup.NewRepository{
			Path: r.Dir, Name: name, Test: orchyaml.TestNone, AgentCommand: agent,
		})
	}
	// A name that can't be is refused before there is a file to blame.
	_, err := add("../x", "")
	if err == nil || !strings.HasPrefix(err.Error(), "--name: "+config.NameRule) {
		t.Errorf("bad name: %v", err)
	}
	if _, err := os.Stat(cfg.Data.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was begun: %v", err)
	}
	// It reminds of the missing agent until there is one.
	for _, name := range []string{"one", "two"} {
		if added, err := add(name, ""); err != nil || !added.AgentMissing {
			t.Errorf("%s: %+v, %v", name, added, err)
		}
	}
	var taken *orchyaml.NameTakenError
	if _, err = add("one", ""); !errors.As(err, &taken) {
		t.Errorf("taken: %v", err)
	}
	content, err := os.ReadFile(cfg.Data.File)
	if err != nil {
		t.Fatal(err)
	}
	set := strings.Replace(string(content), "    command: ", "    command: my-agent #", 1)
	if err := os.WriteFile(cfg.Data.File, []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	if added, err := add("three", ""); err != nil || added.AgentMissing {
		t.Errorf("three: %+v, %v", added, err)
	}
}
