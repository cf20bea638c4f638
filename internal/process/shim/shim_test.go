package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

func TestExit(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(notExecutable, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		opts         []func(*process.Spec)
		code         int // -1: none
		signal       string
		errs         bool
	}{
		{name: "normal", script: "echo done"},
		{name: "code", script: "exit 3", code: 3},
		{name: "signal", script: "kill -SEGV $$", code: -1, signal: "SIGSEGV"},
		{name: "no such command", opts: []func(*process.Spec){argv("no-such-command-anywhere")}, code: 127, errs: true},
		{name: "no such file", opts: []func(*process.Spec){argv("/no/such/file")}, code: 127, errs: true},
		{name: "not executable", opts: []func(*process.Spec){argv(notExecutable)}, code: 126, errs: true},
		{name: "no such directory", script: "true", opts: []func(*process.Spec){func(s *process.Spec) { s.Dir += "/gone" }}, code: -1, errs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtest.Start(t, tt.script, tt.opts...)
			exit := runtest.Wait(t, r)
			if (tt.code < 0) != (exit.Code == nil) || exit.Signal != tt.signal || exit.Why != process.WhyExited || (exit.Error != "") != tt.errs {
				t.Fatal(runtest.Show(exit))
			}
			if tt.code >= 0 {
				runtest.WantCode(t, exit, tt.code)
			}
			if exit.StartedAt.IsZero() || exit.FinishedAt.Before(exit.StartedAt) {
				t.Fatalf("times: %v to %v", exit.StartedAt, exit.FinishedAt)
			}
		})
	}
}

func TestProgramSeesItsOwnEnvironmentOnly(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, "env | sort; pwd; ls -l /proc/self/fd | sed -n 's/.*-> //p'; echo problem >&2")
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	got := runtest.Output(t, r)
	for _, want := range []string{"SHOWN=yes\n", "ORCH_RUN=" + r.Spec().RunID + "\n", "\n" + work + "\n", "problem\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "HOME=") || strings.Contains(got, "/"+"lock"+"\n") {
		t.Errorf("something leaked: %q", got)
	}
	info, err := os.Stat(r.Spec().RunID)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the run directory: %v, %v", info.Mode(), err)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	prompt := strings.Repeat("a long prompt\n", 20_000) // more than a pipe holds
	if err := process.Create(dir, process.Spec{RunID: dir, Argv: []string{"wc", "-c"}, Dir: "/"}, []byte(prompt)); err != nil {
		t.Fatal(err)
	}
	r := runtest.Launch(t, dir)
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if got := strings.TrimSpace(runtest.Output(t, r)); got != "280000" {
		t.Fatalf("read %s bytes", got)
	}
}

func TestUnreadStdinHoldsNothingUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := process.Create(dir, process.Spec{RunID: dir, Argv: []string{"true"}, Dir: "/"}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	runtest.WantCode(t, runtest.Wait(t, runtest.Launch(t, dir)), 0)
}

const stubborn = `trap '' TERM; echo ready; while :; do sleep 1000; done`

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		limit        func(*process.Spec)
		why          process.Why
		signal       string
	}{
		{"timeout", "exec sleep 1000", timeout(50 * time.Millisecond), process.WhyTimeout, "SIGTERM"},
		{"timeout of one that talks", "while :; do echo x; sleep 0.02; done", timeout(300 * time.Millisecond), process.WhyTimeout, "SIGTERM"},
		{"timeout of one that ignores it", stubborn, timeout(6 * time.Second), process.WhyTimeout, "SIGKILL"}, // it has to come to that
		{"stall from the start", "exec sleep 1000", stallTimeout(50 * time.Millisecond), process.WhyStalled, "SIGTERM"},
		{"stall after output", "echo x; exec sleep 1000", stallTimeout(50 * time.Millisecond), process.WhyStalled, "SIGTERM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtest.Start(t, tt.script, tt.limit, grace(200*time.Millisecond))
			if exit := runtest.Wait(t, r); exit.Why != tt.why || exit.Signal != tt.signal {
				t.Fatal(runtest.Show(exit))
			}
		})
	}
}

func TestTalkingIsNoStall(t *testing.T) {
	t.Parallel()
	// In all far longer than the limit, each silence far shorter.
	r, _ := runtest.Start(t, "for i in $(seq 100); do echo x; sleep 0.1; done", stallTimeout(8*time.Second))
	if exit := runtest.Wait(t, r); exit.Why != process.WhyExited {
		t.Fatal(runtest.Show(exit))
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("gentle", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
		runtest.Eventually(t, "ready", func() bool { return strings.Contains(runtest.Output(t, r), "ready") })
		if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
			t.Fatal(err)
		}
		exit := runtest.Wait(t, r)
		runtest.WantCode(t, exit, 7)
		if exit.Why != process.WhyCancelled || !strings.Contains(runtest.Output(t, r), "bye") {
			t.Fatal(runtest.Show(exit), runtest.Output(t, r))
		}
	})
	t.Run("stubborn", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, stubborn, grace(50*time.Millisecond))
		runtest.Eventually(t, "ready", func() bool { return strings.Contains(runtest.Output(t, r), "ready") })
		if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), process.WhyInterrupted); err != nil { // the first reason stands
			t.Fatal(err)
		}
		if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Signal != "SIGKILL" {
			t.Fatal(runtest.Show(exit))
		}
	})
	t.Run("stopped program", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "kill -STOP $$; sleep 1000", grace(50*time.Millisecond))
		runtest.Started(t, r)
		if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Signal != "SIGKILL" {
			t.Fatal(runtest.Show(exit))
		}
	})
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		dir, work := runtest.Create(t, "echo > ran")
		r, err := process.OpenRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if exit := runtest.Wait(t, runtest.Launch(t, dir)); exit.Why != process.WhyCancelled || exit.Code != nil {
			t.Fatal(runtest.Show(exit))
		}
		runtest.WantNotRun(t, work)
	})
	t.Run("by a signal from outside", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "exec sleep 1000")
		if err := unix.Kill(runtest.Started(t, r).PIDs.Shim.PID, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if exit := runtest.Wait(t, r); exit.Why != process.WhyInterrupted {
			t.Fatal(runtest.Show(exit))
		}
	})
}

// TestShutdownThatEndsTheProgramFirst: a machine that shuts down signals the shim and the program, which may be gone before
// the shim hears of it. That is no failure of the program's.
func TestShutdownThatEndsTheProgramFirst(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `(trap '' TERM; sh -c 'echo $PPID > pid'; while :; do sleep 0.01; done) & exec sleep 1000`)
	left := runtest.PIDIn(t, filepath.Join(work, "pid"))
	pids := runtest.Started(t, r).PIDs
	for _, kill := range []struct {
		who process.Identity
		by  unix.Signal
	}{{pids.Agent, unix.SIGTERM}, {pids.Shim, unix.SIGTERM}, {left, unix.SIGKILL}} { // the shim waits for what is left
		if err := unix.Kill(kill.who.PID, kill.by); err != nil {
			t.Fatal(err)
		}
		if kill.who == pids.Agent {
			runtest.Eventually(t, "program reaped", func() bool { return process.Probe(pids.Agent) == process.Dead })
		}
	}
	if exit := runtest.Wait(t, r); exit.Why != process.WhyInterrupted || exit.Signal != "SIGTERM" {
		t.Fatal(runtest.Show(exit))
	}
}

func TestWhatIsLeftBehindIsEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script string }{
		{"background child that holds stdout", `sh -c 'echo $$ > pid; exec sleep 1000' &`},
		{"daemon in another session", `(setsid sh -c 'echo $$ > pid; exec sleep 1000' >/dev/null 2>&1 &)`},
		{"daemon without environment", `(setsid env -i /bin/sh -c 'echo $$ > pid; exec /bin/sleep 1000' &)`},
		{"daemon that ignores SIGTERM", `(setsid sh -c 'trap "" TERM; echo $$ > pid; while :; do sleep 1000; done' &)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, work := runtest.Start(t, tt.script+"\n"+`until [ -s pid ]; do sleep 0.01; done; read go < gate; echo last; exit 4`, func(s *process.Spec) {
				if err := unix.Mkfifo(filepath.Join(s.Dir, "gate"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, grace(100*time.Millisecond))
			left := runtest.PIDIn(t, filepath.Join(work, "pid"))
			if v := process.Probe(left); v != process.Alive {
				t.Fatalf("daemon is %s", v)
			}
			if err := os.WriteFile(filepath.Join(work, "gate"), []byte("go\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			exit := runtest.Wait(t, r)
			runtest.WantCode(t, exit, 4)
			if v := process.Probe(left); v != process.Dead || exit.Error != "" || !strings.HasSuffix(runtest.Output(t, r), "last\n") {
				t.Fatalf("daemon is %s; %s; %q", v, runtest.Show(exit), runtest.Output(t, r))
			}
		})
	}
}

func TestForkBombIsEnded(t *testing.T) {
	t.Parallel()
	// Every process leaves a successor in a session of its own before it dies of SIGTERM.
	r, work := runtest.Start(t, `cat > chain <<'E'
echo >> links
[ $(wc -l < links) -lt 200 ] && (setsid sh ./chain >/dev/null 2>&1 &)
E
sh ./chain; exec sleep 1000`, grace(10*time.Millisecond))
	runtest.Eventually(t, "some links", func() bool {
		raw, _ := os.ReadFile(filepath.Join(work, "links"))
		return len(raw) > 5
	})
	if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
		t.Fatal(err)
	}
	if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Error != "" {
		t.Fatal(runtest.Show(exit))
	}
	if left := marked(t, r.Spec().RunID); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// marked finds the processes that carry a run's mark.
func marked(t *testing.T, runID string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || len(all) == 0 {
		t.Fatalf("list processes: %v, %v", all, err)
	}
	var found []string
	for _, path := range all {
		env, _ := os.ReadFile(path) // empty for a zombie, closed for what isn't ours
		if slices.Contains(strings.Split(string(env), "\x00"), process.Mark+"="+runID) {
			found = append(found, path)
		}
	}
	return found
}
