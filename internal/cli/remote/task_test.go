package remote_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/api"
	"orch/internal/cli/exit"
)

func TestTaskAnswer(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	for key := range strings.FieldsSeq("demo-1 demo-2 demo-3") {
		b.AddTask(api.Task{Key: key, State: api.TaskBlocked, ReasonCode: new("needs_input")})
	}
	file := filepath.Join(t.TempDir(), "answer")
	if err := os.WriteFile(file, []byte("port\n8080\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := orch(t, exit.Done, dataRoot, "task", "answer", "demo-1", "port 8080"); out != "demo-1 goes on with the answer\n" {
		t.Errorf("printed %q", out)
	}
	out, _ := orch(t, exit.Done, dataRoot, "--json", "task", "answer", "demo-2", "--file", file)
	if task := decode[api.Task](t, out); task.State != api.TaskActive || *task.Reason != "port\n8080\n" {
		t.Errorf("printed %s", out)
	}
	if _, told := orch(t, exit.Failed, dataRoot, "task", "answer", "demo-1", "again"); told != "orch: the task doesn't ask anything\n" {
		t.Errorf("told %q", told)
	}
	for _, args := range [][]string{{}, {" "}, {"x", "--file", file}, {"--file", file + "-gone"}} {
		orch(t, exit.Usage, dataRoot, append([]string{"task", "answer", "demo-3"}, args...)...)
	}
}

func TestTaskRevert(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddTask(api.Task{ID: 1, Key: "demo-1", Repo: "demo", State: api.TaskDone})
	b.AddTask(api.Task{ID: 2, Key: "demo-2", Repo: "demo", State: api.TaskActive})
	if out, _ := orch(t, exit.Done, dataRoot, "task", "revert", "demo-1"); !strings.Contains(out, "demo-3 added to take back demo-1") {
		t.Errorf("printed %q", out)
	}
	if _, said := orch(t, exit.Failed, dataRoot, "task", "revert", "demo-2"); !strings.Contains(said, "hasn't landed") {
		t.Errorf("said %q", said)
	}
}
