package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"orch/api"
	"orch/internal/client"
)

// follower is an `orch job log --follow` that runs. What it prints is in the file shown, what it tells in the file told.
type follower struct {
	p     *place
	ended chan error
}

func (p *place) follow(job int64, flags ...string) *follower {
	p.t.Helper()
	f := &follower{p: p, ended: make(chan error, 1)}
	cmd := p.command(append([]string{"job", "log", strconv.FormatInt(job, 10), "--follow"}, flags...)...)
	for name, stream := range map[string]func(*os.File){
		"shown": func(file *os.File) { cmd.Stdout = file }, "told": func(file *os.File) { cmd.Stderr = file },
	} {
		file, err := os.Create(filepath.Join(p.dir, name))
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = file.Close() })
		stream(file)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func(cmd *exec.Cmd) { f.ended <- cmd.Wait() }(cmd)
	p.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return f
}

// goesOn waits until it has shown more.
func (f *follower) goesOn() {
	f.p.t.Helper()
	before := len(f.p.read("shown"))
	eventually(f.p.t, "more of the log", func(context.Context) bool { return len(f.p.read("shown")) > before })
}

func (f *follower) end() {
	f.p.t.Helper()
	eventually(f.p.t, "the end of the log", func(context.Context) bool { return len(f.ended) > 0 })
	if err := <-f.ended; err != nil {
		f.p.t.Errorf("orch job log --follow: %v\n%s", err, f.p.read("told"))
	}
}

// waits counts how often it has told that it waits for the server.
func (f *follower) waits() int { return strings.Count(f.p.read("told"), "; waiting 15m0s for it") }

// Whoever follows a log sees all that the agent writes, and each byte once, however often the server dies.
func TestJobLogFollowOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, `here=$(dirname "$0")
echo $$ >> "$here/starts"
n=0
while [ ! -e "$here/go" ]; do
	n=$((n+1))
	echo "ligne n° $n" >> "$here/wrote"
	echo "ligne n° $n"
	sleep 0.01
done
touch done && git add done && git commit -qm "Do it"
`)
	s := p.serve()
	key := s.add("Talk")
	log := p.follow(s.started(key).JobID)
	for kill := range 3 {
		log.goesOn()
		_ = s.end(syscall.SIGKILL)
		eventually(t, "it waits for the server", func(context.Context) bool { return log.waits() == kill+1 })
		s = p.serve()
	}
	log.goesOn()
	p.write("go", "")
	log.end()
	if shown, wrote := p.read("shown"), p.read("wrote"); shown != wrote {
		t.Errorf("the agent wrote %d bytes, shown were %d:\n%s", len(wrote), len(shown), shown)
	}
	if told := p.read("told"); log.waits() != 3 || !strings.HasSuffix(told, "orch: the run ended: exit code 0\n") {
		t.Errorf("told\n%s", told)
	}
	s.landed(key)
	s.stops()
}

// The end of a run that nobody saw end is known to those who follow it, and to those who come later.
func TestFollowOfARunThatEndedWhileOrchWasDown(t *testing.T) {
	t.Parallel()
	p := newPlace(t, `here=$(dirname "$0")
echo $$ >> "$here/starts"
echo before
while [ ! -e "$here/go" ]; do sleep 0.02; done
echo after
exit 7
`)
	p.onGivenDatabase()
	s := p.serve()
	key := s.add("Fail")
	run := s.started(key)
	log := p.follow(run.JobID, "--json")
	log.goesOn()
	_ = s.end(syscall.SIGKILL)
	p.write("go", "")
	eventually(t, "how it ended", func(context.Context) bool {
		_, err := os.Stat(filepath.Join(p.root, "runs", run.ID.String(), "exit.json"))
		return err == nil
	})
	s = p.serve()
	var text strings.Builder
	end, err := s.client.FollowLog(t.Context(), run.ID, 0, func(c client.Chunk) error {
		text.WriteString(c.Text)
		return nil
	})
	if err != nil || text.String() != "before\nafter\n" {
		t.Errorf("read %q, %v", text.String(), err)
	}
	log.end()
	lines := strings.Split(strings.TrimSpace(p.read("shown")), "\n")
	var seen api.RunEnd
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &seen); err != nil {
		t.Fatal(err)
	}
	for who, end := range map[string]api.RunEnd{"who came later": end, "who had followed": seen} {
		if value(end.ExitCode) != 7 || value(end.Ended) != "exited" || value(end.Outcome) != "agent_failed" || end.FinishedAt == nil || end.LogEnd != 13 {
			t.Errorf("%s learns %+v", who, end)
		}
	}
	shown, err := s.client.GetRun(t.Context(), run.ID)
	if err != nil || shown.Here == nil || shown.Here.LogEnd != 13 || shown.Here.WorkingDirectory != filepath.Join(p.root, "workspaces", "app", key) {
		t.Errorf("the run is shown as %+v, %v", shown.Here, err)
	}
	if out := p.orch("job", "show", strconv.FormatInt(run.JobID, 10)); !strings.Contains(out, run.ID.String()+": agent coder (command), agent_failed (exit code 7)") || !strings.Contains(out, "  has written ") {
		t.Errorf("orch job show:\n%s", out)
	}
	p.cancelAll(s, map[string]api.Run{key: run})
}
