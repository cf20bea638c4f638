package shim

import (
	"os"
	"path/filepath"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// Until a shim has protected itself, every process of its user can open whatever of its descriptors can be opened: a pipe,
// but no socket.
func TestBundleCannotBeOpenedByOthers(t *testing.T) {
	t.Parallel()
	opened := filepath.Join(t.TempDir(), "opened")
	dir, _ := runtest.Create(t, "echo $KEY")
	shim := []string{"sh", "-c", `(exec 3< /proc/$$/fd/0) 2> /dev/null && echo > "$0"; exec "$1" shim "$2"`, opened, os.Args[0]}
	r := runtest.LaunchWith(t, dir, shim, process.Bundle{Env: append(runtest.Env(), "KEY=key-of-the-agent")})
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if got := runtest.Output(t, r); got != "key-of-the-agent\n" {
		t.Errorf("the program got %q", got)
	}
	if _, err := os.Stat(opened); !os.IsNotExist(err) {
		t.Error("it was opened", err)
	}
}
