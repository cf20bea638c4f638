// Package runtest runs programs under real shims for tests.
//
// The test binary is the shim: a TestMain that finds "shim DIR" as its arguments exits with shim.Run(DIR).
package runtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/procfs"
)

// Patience bounds every wait of a test; it is no expectation.
const Patience = 4 * time.Minute

// Shim is the command that a shim is started with.
func Shim() []string { return []string{os.Args[0], "shim"} }

// Env is all that a program gets. A race detector would otherwise hold each exit up for a second.
func Env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "SHOWN=yes", "GORACE=atexit_sleep_ms=0"}
}

// Create makes a run directory for a shell script that works in another new directory. The run's id is its directory.
func Create(t *testing.T, script string, opts ...func(*process.Spec)) (dir, work string) {
	t.Helper()
	work = t.TempDir()
	dir = filepath.Join(t.TempDir(), "run")
	spec := process.Spec{RunID: dir, Argv: []string{"sh", "-c", script}, Dir: work, KillGrace: time.Second}
	for _, opt := range opts {
		opt(&spec)
	}
	if err := process.Create(dir, spec, nil); err != nil {
		t.Fatal(err)
	}
	return dir, work
}

// Launch starts a shim for a run directory, and ends it with the test.
func Launch(t *testing.T, dir string) *process.Run {
	t.Helper()
	return LaunchWith(t, dir, Shim(), process.Bundle{Env: Env()})
}

// LaunchWith is Launch with another shim command or other things to pass on.
func LaunchWith(t *testing.T, dir string, shim []string, b process.Bundle) *process.Run {
	t.Helper()
	r, err := process.Launch(t.Context(), shim, dir, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { End(t, r) })
	return r
}

// Start is Create and Launch.
func Start(t *testing.T, script string, opts ...func(*process.Spec)) (r *process.Run, work string) {
	t.Helper()
	dir, work := Create(t, script, opts...)
	return Launch(t, dir), work
}

// End leaves nothing of a run behind, however the test ended.
func End(t *testing.T, r *process.Run) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), Patience, errors.New("clean-up took too long"))
	defer cancel()
	if err := r.Stop(ctx, process.WhyInterrupted); err != nil && !errors.Is(err, process.ErrNoRun) {
		t.Errorf("stop: %v", err)
	}
	if gone := r.ShimGone(); gone != nil {
		<-gone
	}
}

// Bound is the test's context with Patience.
func Bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Patience, errors.New("test took too long"))
	t.Cleanup(cancel)
	return ctx
}

// Wait waits for the end of a run.
func Wait(t *testing.T, r *process.Run) process.Exit {
	t.Helper()
	exit, err := r.Wait(Bound(t))
	if err != nil {
		t.Fatalf("wait: %v; shim: %s", err, shimErr(r))
	}
	return exit
}

// Started waits until the program runs or the run is over.
func Started(t *testing.T, r *process.Run) process.State {
	t.Helper()
	st, err := r.WaitStarted(Bound(t))
	if err != nil {
		t.Fatalf("wait for start: %v; shim: %s", err, shimErr(r))
	}
	return st
}

// SmallDisk is a directory on a file system of its own with so much room, which ends with the test. It is mounted in a
// namespace of a helper and reached through that, so it takes no privileges and leaves nothing behind.
func SmallDisk(t *testing.T, size int64) string {
	t.Helper()
	args := []string{"--mount", "--map-root-user"}
	if os.Geteuid() == 0 {
		args = args[:1]
	}
	at := t.TempDir()
	args = append(args, "sh", "-c", `mount -t tmpfs -o mode=0700,size="$1" small "$2" && echo mounted && exec cat`, "sh", strconv.FormatInt(size, 10), at)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", args...) // until the clean-up
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("mount a small disk: %q, %v", line, err)
	}
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, at)
}

// Fill takes all the room of a disk; the function gives it back.
func Fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 64 << 10; size > 0; { // the last bytes too
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func shimErr(r *process.Run) string {
	raw, _ := os.ReadFile(filepath.Join(r.Spec().RunID, "shim.err")) // there need not be one
	return string(raw)
}

// Output is the end of a run's log.
func Output(t *testing.T, r *process.Run) string {
	t.Helper()
	raw, err := r.Log().Tail(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Eventually polls; it fails only after the test's whole patience.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx := Bound(t)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Freeze stops a process as a debugger or a person would, and waits until it stands: a signal takes its time.
func Freeze(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the stop", func() bool {
		st, err := procfs.Read(pid)
		return err == nil && st.Stopped()
	})
}

// PIDIn waits for a process to have written its pid and names it.
func PIDIn(t *testing.T, path string) process.Identity {
	t.Helper()
	var id process.Identity
	Eventually(t, "pid in "+path, func() bool {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(raw), "\n") {
			return false
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		id, err = process.IdentityOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	return id
}

// WantCode checks the exit code.
func WantCode(t *testing.T, exit process.Exit, code int) {
	t.Helper()
	if exit.Code == nil || *exit.Code != code {
		t.Fatalf("want code %d: %s", code, Show(exit))
	}
}

// WantNotRun checks that a script which writes the file ran in its directory didn't run.
func WantNotRun(t *testing.T, work string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(work, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the program ran: %v", err)
	}
}

// Show writes an exit out.
func Show(exit process.Exit) string {
	code := "none"
	if exit.Code != nil {
		code = strconv.Itoa(*exit.Code)
	}
	return fmt.Sprintf("code=%s signal=%q why=%s error=%q", code, exit.Signal, exit.Why, exit.Error)
}
