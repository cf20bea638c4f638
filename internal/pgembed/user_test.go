package pgembed

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// These tests prove what the server's own user means for us, so most of them only have something to prove when run by
// root; an ordinary user runs all others as what they are.

func TestUser_ClosedParentNamesDirectoryAndRemedy(t *testing.T) {
	t.Parallel()
	closed := t.TempDir() // below a directory of mode 0700 even as root
	dir := filepath.Join(closed, "root", "pg")
	if os.Geteuid() != 0 {
		start(t, dir) // our own server enters like ourselves
		return
	}
	if err := os.Chmod(filepath.Dir(closed), 0o700); err != nil {
		t.Fatal(err)
	}
	err := refused(t, Config{Dir: dir, Unsafe: true}, "can't enter "+filepath.Dir(closed)+":", "chmod o+x "+filepath.Dir(closed)+"`", "ORCH_ROOT")
	if !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was made")
	}
}

// program copies the test binary to where other users can run it.
func program(t *testing.T) string {
	t.Helper()
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("install", "-m", "755", exe, filepath.Join(dir, "serve")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "serve")
}

// A cluster that an ordinary user made is run as that user when root takes over, and by the user again afterwards.
func TestUser_OrdinaryThenRootThenOrdinary(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve := exec.Command(program(t))
	again := exec.Command(serve.Path)
	if os.Geteuid() == 0 {
		nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
		serve.SysProcAttr, again.SysProcAttr = nobody, nobody
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	owner := startServed(t, serve, dir)
	_ = owner.stdin.Close()
	if err := owner.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	uid := func(pid int) uint32 {
		var st unix.Stat_t
		if err := unix.Stat("/proc/"+strconv.Itoa(pid), &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid
	}
	if os.Geteuid() == 0 && uid(s.PID()) != 65534 {
		t.Errorf("runs as %d", uid(s.PID()))
	}
	if err := execute(s, "select 1"); err != nil {
		t.Error(err)
	}
	stop(t, s)
	owner = startServed(t, again, dir)
	_ = owner.stdin.Close()
	if err := owner.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestUser_ClusterOfRootIsRefused(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	data := filepath.Join(dir, "data")
	if os.Geteuid() != 0 {
		return // only root can give a directory away
	}
	if err := os.Chown(data, 0, 0); err != nil {
		t.Fatal(err)
	}
	_ = refused(t, Config{Dir: dir, Unsafe: true}, "belongs to root", "chown -R", data)
}

func TestUser_WithoutPtraceSeesLeftOvers(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	old := orphan(t, dir)
	owner := startServedWithout(t, self(t), dir, unix.CAP_SYS_PTRACE)
	if running(old.Pid) || owner.pid == old.Pid {
		t.Errorf("the orphan %d still runs, the new one is %d", old.Pid, owner.pid)
	}
	_ = owner.stdin.Close()
	if err := owner.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// startServedWithout is startServed from a thread that dropped the capability from its bounding set: an exec by root then
// gains all but that one. The thread isn't given back to others.
func startServedWithout(t *testing.T, cmd *exec.Cmd, dir string, capability uintptr) *served {
	t.Helper()
	started := make(chan *served, 1)
	go func() {
		defer close(started)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if os.Geteuid() == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				t.Error(err)
				return
			}
		}
		started <- startServed(t, cmd, dir)
	}()
	s, ok := <-started
	if !ok {
		t.FailNow()
	}
	return s
}

func TestUser_WithoutSetuid(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // nothing to become
	}
	dir := oldDir(t)
	cmd := self(t)
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Env = append(os.Environ(), serveVariable+"="+dir, "PGEMBED_TEST_UNSAFE=1")
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SETUID, 0, 0, 0); err != nil {
			ended <- err
			return
		}
		ended <- cmd.Run()
	}()
	if err := <-ended; err == nil || !strings.Contains(out.String(), "CAP_SETUID") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestStart_OddPath(t *testing.T) {
	t.Parallel()
	const odd = `a, "b" 'c' \d %p`
	dir := filepath.Join(filepath.Dir(oldDir(t)), odd, "pg")
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o711), os.Rename(filepath.Join(dir, "..", "..", "pg"), dir)); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	wantKept(t, s.ConnConfig(Database))
	cfg, err := Connect(dir, Database)
	if err != nil {
		t.Fatal(err)
	}
	wantKept(t, cfg)
}

// What was acknowledged is there after everything was killed at once.
func TestCrash_AcknowledgedIsKept(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := execute(s, "create table log (n int)"); err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	for range 200 {
		if err := execute(s, "insert into log values (1)"); err != nil {
			t.Fatal(err)
		}
		acknowledged++
	}
	pids, err := s.cluster.standingIn(context.Background(), s.cluster.data)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.Done()
	stop(t, s)
	s = start(t, dir)
	if err := execute(s, "do $$ begin if (select count(*) from log) <> "+strconv.Itoa(acknowledged)+" then raise exception 'lost'; end if; end $$"); err != nil {
		t.Error(err)
	}
	wantKept(t, s.ConnConfig(Database))
}
