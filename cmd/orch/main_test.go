package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"orch/internal/testhost"
)

// program is the real binary, built once for all tests, with the race detector in it when the tests have it.
var program string

// scratch holds everything that tests leave on disk. Every directory above it can be entered by everybody: as root the
// private PostgreSQL runs as another user.
var scratch string

// variables are what there was of ORCH_* outside. The programs that tests start see none of it.
var variables = map[string]string{}

func TestMain(m *testing.M) {
	if err := testhost.Become(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	for _, entry := range os.Environ() { // whoever runs the tests may have an orch of their own
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "ORCH_") && name != "ORCH_POSTGRES_BIN" {
			_ = os.Unsetenv(name)
			variables[name] = value
		}
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command that ends waits for a second
	var err error
	if scratch, err = os.MkdirTemp("", "orch-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.Chmod(scratch, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program = filepath.Join(scratch, "bin", "orch")
	args := []string{"build", "-o", program}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build orch:", err)
		return 1
	}
	return m.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	work, err := os.MkdirTemp(scratch, "scripts-") //nolint:usetesting // as root its parents must let other users in
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         work,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"))
			e.Setenv("ORCH_ROOT", filepath.Join(e.WorkDir, "root"))
			e.Setenv("ORCH_KILL_GRACE_S", "1")
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(e.WorkDir, "gitconfig"))
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			config := "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n"
			return os.WriteFile(filepath.Join(e.WorkDir, "gitconfig"), []byte(config), 0o600)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"no-process": noProcess,
		},
	})
}
