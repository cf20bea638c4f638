package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExit(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(notExecutable, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		opts         []option
		code         int // -1: none
		signal       string
		errs         bool
	}{
		{name: "normal", script: "echo done"},
		{name: "code", script: "exit 3", code: 3},
		{name: "signal", script: "kill -SEGV $$", code: -1, signal: "SIGSEGV"},
		{name: "no such command", opts: []option{argv("no-such-command-anywhere")}, code: 127, errs: true},
		{name: "no such file", opts: []option{argv("/no/such/file")}, code: 127, errs: true},
		{name: "not executable", opts: []option{argv(notExecutable)}, code: 126, errs: true},
		{name: "no such directory", script: "true", opts: []option{func(s *Spec) { s.Dir += "/gone" }}, code: -1, errs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := start(t, tt.script, tt.opts...)
			exit := wait(t, r)
			if (tt.code < 0) != (exit.Code == nil) || exit.Signal != tt.signal || exit.Why != WhyExited || (exit.Error != "") != tt.errs {
				t.Fatal(show(exit))
			}
			if tt.code >= 0 {
				wantCode(t, exit, tt.code)
			}
			if exit.StartedAt.IsZero() || exit.FinishedAt.Before(exit.StartedAt) {
				t.Fatalf("times: %v to %v", exit.StartedAt, exit.FinishedAt)
			}
		})
	}
}

func TestProgramSeesItsOwnEnvironmentOnly(t *testing.T) {
	t.Parallel()
	r, work := start(t, "env | sort; pwd; ls -l /proc/self/fd | sed -n 's/.*-> //p'; echo problem >&2")
	wantCode(t, wait(t, r), 0)
	got := output(t, r)
	for _, want := range []string{"SHOWN=yes\n", "ORCH_RUN=" + r.spec.RunID + "\n", "\n" + work + "\n", "problem\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "HOME=") || strings.Contains(got, "/"+lockFile+"\n") {
		t.Errorf("something leaked: %q", got)
	}
	info, err := os.Stat(r.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the run directory: %v, %v", info.Mode(), err)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	prompt := strings.Repeat("a long prompt\n", 20_000) // more than a pipe holds
	if err := Create(dir, Spec{RunID: dir, Argv: []string{"wc", "-c"}, Dir: "/"}, []byte(prompt)); err != nil {
		t.Fatal(err)
	}
	r := launch(t, dir)
	wantCode(t, wait(t, r), 0)
	if got := strings.TrimSpace(output(t, r)); got != "280000" {
		t.Fatalf("read %s bytes", got)
	}
}

func TestUnreadStdinHoldsNothingUp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := Create(dir, Spec{RunID: dir, Argv: []string{"true"}, Dir: "/"}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, wait(t, launch(t, dir)), 0)
}

const stubborn = `trap '' TERM; echo ready; while :; do sleep 1000; done`

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		limit        option
		why          Why
		signal       string
	}{
		{"timeout", "exec sleep 1000", timeout(50 * time.Millisecond), WhyTimeout, "SIGTERM"},
		{"timeout of one that talks", "while :; do echo x; sleep 0.02; done", timeout(300 * time.Millisecond), WhyTimeout, "SIGTERM"},
		{"timeout of one that ignores it", stubborn, timeout(300 * time.Millisecond), WhyTimeout, "SIGKILL"},
		{"stall from the start", "exec sleep 1000", stallTimeout(50 * time.Millisecond), WhyStalled, "SIGTERM"},
		{"stall after output", "echo x; exec sleep 1000", stallTimeout(50 * time.Millisecond), WhyStalled, "SIGTERM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _ := start(t, tt.script, tt.limit, grace(200*time.Millisecond))
			if exit := wait(t, r); exit.Why != tt.why || exit.Signal != tt.signal {
				t.Fatal(show(exit))
			}
		})
	}
}

func TestTalkingIsNoStall(t *testing.T) {
	t.Parallel()
	// In all far longer than the limit, each silence far shorter.
	r, _ := start(t, "for i in $(seq 40); do echo x; sleep 0.1; done", stallTimeout(3*time.Second))
	if exit := wait(t, r); exit.Why != WhyExited {
		t.Fatal(show(exit))
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("gentle", func(t *testing.T) {
		t.Parallel()
		r, _ := start(t, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
		eventually(t, "ready", func() bool { return strings.Contains(output(t, r), "ready") })
		if err := r.Stop(t.Context(), WhyCancelled); err != nil {
			t.Fatal(err)
		}
		exit := wait(t, r)
		wantCode(t, exit, 7)
		if exit.Why != WhyCancelled || !strings.Contains(output(t, r), "bye") {
			t.Fatal(show(exit), output(t, r))
		}
	})
	t.Run("stubborn", func(t *testing.T) {
		t.Parallel()
		r, _ := start(t, stubborn, grace(50*time.Millisecond))
		eventually(t, "ready", func() bool { return strings.Contains(output(t, r), "ready") })
		if err := r.Stop(t.Context(), WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), WhyInterrupted); err != nil { // the first reason stands
			t.Fatal(err)
		}
		if exit := wait(t, r); exit.Why != WhyCancelled || exit.Signal != "SIGKILL" {
			t.Fatal(show(exit))
		}
	})
	t.Run("stopped program", func(t *testing.T) {
		t.Parallel()
		r, _ := start(t, "kill -STOP $$; sleep 1000", grace(50*time.Millisecond))
		started(t, r)
		if err := r.Stop(t.Context(), WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, r); exit.Why != WhyCancelled || exit.Signal != "SIGKILL" {
			t.Fatal(show(exit))
		}
	})
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		dir, work := create(t, "echo > ran")
		r, err := OpenRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), WhyCancelled); err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, launch(t, dir)); exit.Why != WhyCancelled || exit.Code != nil {
			t.Fatal(show(exit))
		}
		wantNotRun(t, work)
	})
	t.Run("by a signal from outside", func(t *testing.T) {
		t.Parallel()
		r, _ := start(t, "exec sleep 1000")
		if err := unix.Kill(started(t, r).PIDs.Shim.PID, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, r); exit.Why != WhyInterrupted {
			t.Fatal(show(exit))
		}
	})
}

func wantNotRun(t *testing.T, work string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(work, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the program ran: %v", err)
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
			r, work := start(t, tt.script+"\n"+`until [ -s pid ]; do sleep 0.01; done; read go < gate; echo last; exit 4`, func(s *Spec) {
				if err := unix.Mkfifo(filepath.Join(s.Dir, "gate"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, grace(100*time.Millisecond))
			left := pidIn(t, filepath.Join(work, "pid"))
			if v := Probe(left); v != Alive {
				t.Fatalf("daemon is %s", v)
			}
			if err := os.WriteFile(filepath.Join(work, "gate"), []byte("go\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			exit := wait(t, r)
			wantCode(t, exit, 4)
			if v := Probe(left); v != Dead || exit.Error != "" || !strings.HasSuffix(output(t, r), "last\n") {
				t.Fatalf("daemon is %s; %s; %q", v, show(exit), output(t, r))
			}
		})
	}
}

func TestForkBombIsEnded(t *testing.T) {
	t.Parallel()
	// Every process leaves a successor in a session of its own before it dies of SIGTERM.
	r, work := start(t, `cat > chain <<'E'
echo >> links
[ $(wc -l < links) -lt 200 ] && (setsid sh ./chain >/dev/null 2>&1 &)
E
sh ./chain; exec sleep 1000`, grace(10*time.Millisecond))
	eventually(t, "some links", func() bool {
		raw, _ := os.ReadFile(filepath.Join(work, "links"))
		return len(raw) > 5
	})
	if err := r.Stop(t.Context(), WhyCancelled); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, r); exit.Why != WhyCancelled || exit.Error != "" {
		t.Fatal(show(exit))
	}
	if left, err := remains(PIDs{}, r.spec.RunID); err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}
