package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience bounds every wait of a test; it is no expectation.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "shim":
			os.Exit(RunShim(os.Args[2]))
		case "launcher": // starts a shim and lives until it is killed
			if _, err := Launch(context.Background(), testShim(), os.Args[2], testEnv()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println("launched")
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		case "probe": // says what an unprivileged process sees of a pid
			pid, _ := strconv.Atoi(os.Args[2])
			id, err := IdentityOf(pid)
			fmt.Println(Probe(id), errors.Is(unix.Kill(pid, 0), unix.EPERM), err)
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

func testShim() []string { return []string{os.Args[0], "shim"} }

// testEnv is all that a shim gets. A race detector would otherwise hold each exit up for a second.
func testEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "SHOWN=yes", "GORACE=atexit_sleep_ms=0"}
}

type option func(*Spec)

func argv(args ...string) option          { return func(s *Spec) { s.Argv = args } }
func grace(d time.Duration) option        { return func(s *Spec) { s.KillGrace = d } }
func timeout(d time.Duration) option      { return func(s *Spec) { s.Timeout = d } }
func stallTimeout(d time.Duration) option { return func(s *Spec) { s.StallTimeout = d } }
func logCap(n int64) option               { return func(s *Spec) { s.LogCap = n } }
func startBy(at int64) option             { return func(s *Spec) { s.StartBy = at } }

// create makes a run directory for a shell script whose working directory is $1 of the result.
func create(t *testing.T, script string, opts ...option) (dir, work string) {
	t.Helper()
	work = t.TempDir()
	dir = filepath.Join(t.TempDir(), "run")
	spec := Spec{RunID: dir, Argv: []string{"sh", "-c", script}, Dir: work, KillGrace: time.Second}
	for _, opt := range opts {
		opt(&spec)
	}
	if err := Create(dir, spec, nil); err != nil {
		t.Fatal(err)
	}
	return dir, work
}

func launch(t *testing.T, dir string) *Run {
	t.Helper()
	r, err := Launch(t.Context(), testShim(), dir, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endShim(t, r) })
	return r
}

func start(t *testing.T, script string, opts ...option) (*Run, string) {
	t.Helper()
	dir, work := create(t, script, opts...)
	return launch(t, dir), work
}

// endShim leaves nothing behind, however the test ended.
func endShim(t *testing.T, r *Run) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("clean-up took too long"))
	defer cancel()
	if err := r.Stop(ctx, WhyInterrupted); err != nil {
		t.Errorf("stop: %v", err)
	}
	if r.shimGone != nil {
		<-r.shimGone
	}
}

func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("test took too long"))
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, r *Run) Exit {
	t.Helper()
	exit, err := r.Wait(bound(t))
	if err != nil {
		t.Fatalf("wait: %v; shim: %s", err, shimErr(r))
	}
	return exit
}

func started(t *testing.T, r *Run) State {
	t.Helper()
	st, err := r.WaitStarted(bound(t))
	if err != nil {
		t.Fatalf("wait for start: %v; shim: %s", err, shimErr(r))
	}
	return st
}

func shimErr(r *Run) string {
	raw, _ := os.ReadFile(filepath.Join(r.dir, errFile))
	return string(raw)
}

func output(t *testing.T, r *Run) string {
	t.Helper()
	raw, err := r.Log().Tail(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// eventually polls; it fails only after the test's whole patience.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx := bound(t)
	for !cond() {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// pidIn waits for a process to have written its pid and names it.
func pidIn(t *testing.T, path string) Identity {
	t.Helper()
	var id Identity
	eventually(t, "pid in "+path, func() bool {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(raw), "\n") {
			return false
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		id, err = IdentityOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	return id
}

func wantCode(t *testing.T, exit Exit, code int) {
	t.Helper()
	if exit.Code == nil || *exit.Code != code {
		t.Fatalf("want code %d: %s", code, show(exit))
	}
}

func show(exit Exit) string {
	code := "none"
	if exit.Code != nil {
		code = strconv.Itoa(*exit.Code)
	}
	return fmt.Sprintf("code=%s signal=%q why=%s error=%q", code, exit.Signal, exit.Why, exit.Error)
}

// helper starts this test binary in another role and gives the first line that it prints.
func helper(t *testing.T, configure func(*exec.Cmd), args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stderr = os.Stderr
	if configure != nil {
		configure(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}
