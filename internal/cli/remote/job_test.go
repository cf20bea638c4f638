package remote_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/cli/exit"
	"orch/internal/httpapi"
)

func TestJobRetry(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddJob(api.Job{ID: 1, State: api.JobFailed, Attempt: 3, MaxAttempts: 4})
	b.AddJob(api.Job{ID: 2, State: api.JobCancelled})
	if out, _ := orch(t, exit.Done, dataRoot, "job", "retry", "1"); out != "job 1 is queued; attempt 3 of 4\n" {
		t.Errorf("printed %q", out)
	}
	out, _ := orch(t, exit.Done, dataRoot, "job", "retry", "2", "--json")
	if j := decode[api.Job](t, out); j.ID != 2 || j.State != api.JobQueued {
		t.Errorf("printed %s", out)
	}
	orch(t, exit.Failed, dataRoot, "job", "retry", "1")
	orch(t, exit.Failed, dataRoot, "job", "retry", "9")
	orch(t, exit.Usage, dataRoot, "job", "retry")
}

func TestJobShowsItsRuns(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddTask(api.Task{Key: "demo-1", State: api.TaskActive})
	b.AddJob(api.Job{ID: 1, Kind: "stage", Lane: "agents", State: api.JobSucceeded, Task: new("demo-1"), Attempt: 1, MaxAttempts: 3})
	b.AddJob(api.Job{ID: 2, Kind: "prune", Lane: "system", State: api.JobQueued})
	run := func(id byte, job int64, purpose, outcome string) api.Run {
		return api.Run{ID: uuid.UUID{15: id}, JobID: job, Purpose: purpose, Outcome: &outcome}
	}
	newest := run(2, 1, "gate", "agent_failed")
	newest.Here = &api.RunHere{Argv: []string{"sh", "-c", "make test"}, WorkingDirectory: "/w", Directory: "/r", LogEnd: 9}
	b.SetRuns("demo-1", run(3, 2, "agent", "ok"), newest, run(1, 1, "agent", "ok"))
	out, _ := orch(t, exit.Done, dataRoot, "job", "show", "1")
	const want = "  task demo-1\n  run 00000000-0000-0000-0000-000000000001: agent, ok\n" +
		"  run 00000000-0000-0000-0000-000000000002: gate, agent_failed\n    started sh -c 'make test'\n    in /w\n    has written 9 bytes, in /r\n"
	if !strings.HasSuffix(out, want) {
		t.Errorf("printed %q", out)
	}
	if out, _ := orch(t, exit.Done, dataRoot, "job", "show", "2"); strings.Contains(out, "run 0") {
		t.Errorf("printed %q", out)
	}
}

// piece is what `job log --json` prints.
type piece struct {
	RunID  uuid.UUID `json:"run_id"`
	Offset *int64    `json:"offset"`
	Text   string    `json:"text"`
	End    *int64    `json:"end"`
}

func TestJobLogAsJSON(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	run := b.AddRun()
	b.AddJob(api.Job{ID: 1, State: api.JobRunning, RunID: &run.ID})
	read := func() piece {
		out, told := orch(t, exit.Done, dataRoot, "job", "log", "1", "--json")
		if told != "" {
			t.Errorf("told %q", told)
		}
		return decode[piece](t, out)
	}
	if p := read(); p.RunID != run.ID || p.Text != "" || p.Offset == nil || *p.Offset != 0 || p.End == nil || *p.End != 0 {
		t.Errorf("nothing written yet: %+v", p)
	}
	long := strings.Repeat("0123456789abcde\n", 100_000) // longer than one answer
	write(t, run, "\xff\n"+long)
	if p := read(); p.Text != "\ufffd\n"+long || *p.Offset != 0 || *p.End != 1_600_002 {
		t.Errorf("from %d to %d, %d bytes", *p.Offset, *p.End, len(p.Text))
	}
	run.Drop(1_600_000)
	if p := read(); p.Text != "e\n" || *p.Offset != 1_600_000 || *p.End != 1_600_002 {
		t.Errorf("after a rotation: %+v", p)
	}
	orch(t, exit.Failed, dataRoot, "job", "log", "9", "--json")
}

func TestJobLogFollowedAsJSON(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	run := b.AddRun()
	b.AddJob(api.Job{ID: 1, State: api.JobRunning, RunID: &run.ID})
	write(t, run, "hello\n")
	run.End(httpapi.RunEnd{Ended: "exited", ExitCode: new(3)})
	out, _ := orch(t, exit.Done, dataRoot, "job", "log", "1", "--follow", "--json")
	lines := json.NewDecoder(strings.NewReader(out))
	var first piece
	if err := lines.Decode(&first); err != nil || first.RunID != run.ID || first.Text != "hello\n" || *first.Offset != 0 || *first.End != 6 {
		t.Errorf("%+v, %v", first, err)
	}
	var end api.RunEnd
	if err := lines.Decode(&end); err != nil || end.RunID != run.ID || *end.ExitCode != 3 || end.LogEnd != 6 {
		t.Errorf("%+v, %v", end, err)
	}
	if strings.Count(out, "\n") != 2 {
		t.Errorf("printed %q", out)
	}
}

func TestJobLogAsText(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	run := b.AddRun()
	b.AddJob(api.Job{ID: 1, State: api.JobSucceeded, RunID: &run.ID})
	write(t, run, "hello\nworld\n")
	run.Drop(6)
	run.End(httpapi.RunEnd{Ended: "exited", ExitCode: new(0)})
	for _, flags := range [][]string{nil, {"--follow"}} {
		out, told := orch(t, exit.Done, dataRoot, append([]string{"job", "log", "1"}, flags...)...)
		if out != "world\n" || !strings.HasPrefix(told, "orch: 6 bytes were dropped here") {
			t.Errorf("%v: printed %q, told %q", flags, out, told)
		}
	}
}

func write(t *testing.T, run interface{ Write(p []byte) (int, error) }, text string) {
	t.Helper()
	if _, err := run.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}
