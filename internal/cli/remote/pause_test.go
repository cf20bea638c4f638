package remote_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/cli/exit"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	out, _ := orch(t, exit.Done, dataRoot, "pause", "--lane", "agents", "--reason", "budget is spent")
	if !strings.Contains(out, "lane agents is paused") || !strings.Contains(out, "`orch resume --lane agents`") {
		t.Errorf("printed %q", out)
	}
	out, _ = orch(t, exit.Done, dataRoot, "--json", "pause", "--repo", "demo", "--reason", "freeze")
	if p := decode[api.Pause](t, out); p.Scope != api.PauseRepo || p.Name != "demo" || p.Reason != "freeze" || p.Actor != "cli" {
		t.Errorf("printed %s", out)
	}
	if paused := b.Pauses(); len(paused) != 2 {
		t.Errorf("paused: %+v", paused)
	}
	out, _ = orch(t, exit.Done, dataRoot, "pause", "--agent", "coder", "--reason", "its provider is down")
	if !strings.Contains(out, "agent coder is paused") || !strings.Contains(out, "`orch resume --agent coder`") {
		t.Errorf("printed %q", out)
	}
	if out, _ = orch(t, exit.Done, dataRoot, "resume", "--agent", "coder"); out != "agent coder goes on\n" {
		t.Errorf("printed %q", out)
	}
	if out, _ = orch(t, exit.Done, dataRoot, "resume", "--repo", "demo"); out != "repository demo goes on\n" {
		t.Errorf("printed %q", out)
	}
	if out, _ = orch(t, exit.Done, dataRoot, "resume", "--repo", "demo"); out != "repository demo wasn't paused\n" {
		t.Errorf("printed %q", out)
	}
	out, _ = orch(t, exit.Done, dataRoot, "resume", "--lane", "agents", "--json")
	if r := decode[api.Resumed](t, out); r.Scope != api.PauseLane || !r.WasPaused {
		t.Errorf("printed %s", out)
	}
}

func TestBadPauses(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	for args, code := range map[string]int{
		"pause --reason x":                           exit.Usage,
		"pause --lane agents":                        exit.Usage,
		"pause --lane agents --repo demo --reason x": exit.Usage,
		"pause --lane agents --agent x --reason x":   exit.Usage,
		"resume":                                       exit.Usage,
		"resume --lane agents --repo demo":             exit.Usage,
		"pause --lane nowhere --reason x":              exit.Failed,
		"pause --lane agents --reason " + "\x1b[2J":    exit.Failed,
		"--json pause --repo nowhere --reason because": exit.Failed,
	} {
		if _, failed := orch(t, code, dataRoot, strings.Split(args, " ")...); !strings.HasPrefix(failed, "orch: ") {
			t.Errorf("%s: told %q", args, failed)
		}
	}
	if paused := b.Pauses(); len(paused) != 0 {
		t.Errorf("paused: %+v", paused)
	}
	orch(t, exit.NoServer, shortDir(t), "pause", "--lane", "agents", "--reason", "x")
}

func TestQueueShowsWhatIsPausedAndWhy(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.SetQueue(func(context.Context) (api.Queue, error) {
		return api.Queue{Paused: []api.Pause{
			{Scope: api.PauseLane, Name: "agents", Reason: "budget is spent", Actor: "cli", Since: time.Now().Add(-2 * time.Hour)},
		}}, nil
	})
	out, _ := orch(t, exit.Done, dataRoot, "queue")
	if !strings.Contains(out, "lane agents was paused 2h00m ago by cli: budget is spent (`orch resume --lane agents` lets it go on)\n") {
		t.Errorf("printed %q", out)
	}
	out, _ = orch(t, exit.Done, dataRoot, "queue", "--json")
	if q := decode[api.Queue](t, out); len(q.Paused) != 1 || q.Paused[0].Reason != "budget is spent" {
		t.Errorf("printed %s", out)
	}
}

func TestWhyAsACommand(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddTask(api.Task{ID: 1, Key: "demo-1", Repo: "demo", Stage: "development", State: api.TaskActive})
	if out, _ := orch(t, exit.Done, dataRoot, "why", "demo-1"); !strings.HasPrefix(out, "demo-1 is at development") {
		t.Errorf("printed %q", out)
	}
	out, _ := orch(t, exit.Done, dataRoot, "why", "demo-1", "--json")
	if d := decode[api.TaskDetail](t, out); d.Task.Key != "demo-1" || d.Paused == nil {
		t.Errorf("printed %s", out)
	}
	orch(t, exit.Failed, dataRoot, "why", "demo-9")
}
