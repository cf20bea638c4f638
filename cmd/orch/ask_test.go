package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"orch/api"
	"orch/internal/testagent"
)

// An agent asks, is answered on the command line, meets its limit and is let go on before that is over: in one session and
// in one workspace, with what it hadn't committed.
func TestAgentAsksAndWaitsAndGoesOnInItsSession(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	program := testagent.Install(t, p.dir, "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{
		{Kind: testagent.Asks, Work: "echo half > half"},
		{Kind: testagent.Quota},
		{Kind: testagent.Works, Work: `git add half && git commit -qm "Do it"`},
	}})
	p.write("root/orch.yaml", `repos:
  - {name: app, path: `+p.repo+`, test: sh test.sh}
agents:
  coder: {preset: claude, command: [`+program.Path+`]}
`)
	p.onGivenDatabase()
	s := p.serve()
	key := s.add("Do it")
	s.until(key, "it asks", func(d api.TaskDetail) bool {
		return d.Task.State == api.TaskBlocked && *d.Task.ReasonCode == "needs_input"
	})
	if out := p.orch("why", key); !strings.Contains(out, testagent.Question) || !strings.Contains(out, "orch task answer "+key) {
		t.Errorf("orch why:\n%s", out)
	}
	if out := p.orch("task", "answer", key, "to the left"); !strings.Contains(out, "goes on") {
		t.Errorf("orch task answer:\n%s", out)
	}
	s.until(key, "its limit is waited for", func(d api.TaskDetail) bool {
		return d.Job != nil && d.Job.Phase != nil && *d.Job.Phase == "agent_paused:coder"
	})
	if out := p.orch("why", key); !strings.Contains(out, "orch resume --agent coder") {
		t.Errorf("orch why:\n%s", out)
	}
	p.orch("resume", "--agent", "coder")
	d := s.landed(key)
	calls := program.Calls(t)
	if len(calls) != 3 {
		t.Fatalf("started %d times", len(calls))
	}
	for i, call := range calls {
		if call.Session != calls[0].Session || call.Dir != filepath.Join(p.root, "workspaces", "app", key) || (i > 0) != slices.Contains(call.Args, "--resume") {
			t.Errorf("start %d: %q in %s, session %s", i, call.Args, call.Dir, call.Session)
		}
	}
	if !strings.Contains(calls[1].Prompt, "Answer: to the left") {
		t.Errorf("told %q", calls[1].Prompt)
	}
	if got := p.git("show", *d.Task.LandedCommit+":half"); got != "half" {
		t.Errorf("landed with %q", got)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}
