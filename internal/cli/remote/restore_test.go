package remote_test

import (
	"strings"
	"testing"

	"orch/api"
	"orch/internal/cli/exit"
)

func TestTaskRestore(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddTask(api.Task{Key: "demo-1", State: api.TaskBlocked})
	b.AddTask(api.Task{Key: "demo-2", State: api.TaskActive})
	out, _ := orch(t, exit.Done, dataRoot, "task", "restore", "demo-1")
	want := "salvage 2 of demo-1 is on the branch orch/restored/demo-1-2; look at it with\n" +
		"  git -C /srv/repo switch orch/restored/demo-1-2\n"
	if out != want {
		t.Errorf("printed %q", out)
	}
	out, _ = orch(t, exit.Done, dataRoot, "--json", "task", "restore", "demo-1", "--salvage", "1", "--branch", "mine")
	if r := decode[api.Restored](t, out); r.Salvage != 1 || r.Branch != "mine" {
		t.Errorf("printed %s", out)
	}
	if out, _ = orch(t, exit.Done, dataRoot, "task", "restore", "demo-1", "--list"); strings.Count(out, "\n") != 3 || !strings.Contains(out, "2222222222") {
		t.Errorf("printed %q", out)
	}
	if out, _ = orch(t, exit.Done, dataRoot, "task", "restore", "demo-2", "--list"); out != "nothing was kept of demo-2\n" {
		t.Errorf("printed %q", out)
	}
	if _, told := orch(t, exit.Failed, dataRoot, "task", "restore", "demo-1", "--branch", "main"); told != "orch: main is taken\n" {
		t.Errorf("told %q", told)
	}
	orch(t, exit.Failed, dataRoot, "task", "restore", "demo-2")
	orch(t, exit.Usage, dataRoot, "task", "restore", "demo-1", "--salvage", "-1")
}
