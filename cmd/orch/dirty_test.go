package main

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"orch/api"
)

// Somebody works in the checkout that a landing has to bring up to date: whoever looks is told that it is their turn, everywhere
// alike, until it is put right; then the landing goes on by itself.
func TestLandingThatWaitsForAPersonSaysSoEverywhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	p.write("agent.sh", `while ! [ -e `+p.dir+`/go ]; do sleep 0.05; done; echo done > done; git add done; git commit -qm "Do it"`)
	s := p.serve()
	key := s.add("Do it")
	p.write("app/test.sh", "echo changed; true\n")
	p.write("go", "")
	d := s.until(key, "it waits for the checkout", func(d api.TaskDetail) bool {
		return d.Job != nil && d.Job.State == api.JobQueued && d.Job.Phase != nil && *d.Job.Phase == "checkout_dirty"
	})
	if task := d.Task; !task.NeedsYou || task.State != api.TaskActive || *task.WaitingFor != "checkout_dirty" || *task.ReasonCode != "checkout_dirty" {
		t.Errorf("%+v", task)
	}
	const why = "has main checked out with uncommitted changes: test.sh; commit or stash them"
	for command, want := range map[string][]string{
		"task list":        {key + "  needs you: checkout dirty"},
		"task show " + key: {"needs you: checkout dirty", "why: ", why},
		"why " + key:       {key + " is at deploy: needs you: checkout dirty", why, "The next step is yours; then it goes on by itself.", "is looked at again in"},
		"queue":            {"0 active, 0 waiting, 1 need you", "needs you: checkout_dirty"},
	} {
		eventually(t, "orch "+command+" says so", func(context.Context) bool { // now and then it is tried again, for a moment
			out := p.orch(strings.Fields(command)...)
			return !slices.ContainsFunc(want, func(want string) bool { return !strings.Contains(out, want) })
		})
	}
	p.git("checkout", "-q", "test.sh")
	if d := s.landed(key); d.Task.NeedsYou || d.Task.WaitingFor != nil || d.Task.ReasonCode != nil {
		t.Errorf("%+v", d.Task)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}
