package pgembed

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func self(t *testing.T) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(exe)
}

// orphan runs the cluster in dir without an owner, and returns its process. It becomes our zombie when it ends.
func orphan(t *testing.T, dir string) *os.Process {
	t.Helper()
	cmd, cfg, err := Command(context.Background(), Config{Dir: dir, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the orphan answers", func() bool {
		conn, err := pgx.ConnectConfig(context.Background(), cfg)
		return err == nil && conn.Close(context.Background()) == nil
	})
	return cmd.Process
}

func TestCrash_ParentKilled(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	for range 3 {
		owner := startServed(t, self(t), dir)
		if err := owner.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = owner.cmd.Wait()
		s := start(t, dir) // at once: the old server may still be shutting down
		wantKept(t, s.ConnConfig(Database))
		stop(t, s)
	}
}

func TestCrash_ParentKilledServerFollows(t *testing.T) {
	t.Parallel()
	owner := startServed(t, self(t), oldDir(t))
	if err := owner.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.cmd.Wait()
	eventually(t, "the server ends by itself", func() bool { return !running(owner.pid) })
}

// running says whether the process exists and isn't a zombie (whoever adopts it may reap late).
func running(pid int) bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return err == nil
}

func TestCrash_ParentAndServerKilled(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	owner := startServed(t, self(t), dir)
	if err := errors.Join(owner.cmd.Process.Kill(), syscall.Kill(owner.pid, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	_ = owner.cmd.Wait()
	wantKept(t, start(t, dir).ConnConfig(Database))
}

func TestCrash_KilledWhileCreating(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cmd := self(t)
	cmd.Env = append(os.Environ(), serveVariable+"="+dir, "PGEMBED_TEST_UNSAFE=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "init-*", "PG_VERSION")
	eventually(t, "initdb runs", func() bool {
		made, _ := filepath.Glob(left)
		return len(made) > 0
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	start(t, dir)
	if made, _ := filepath.Glob(filepath.Join(dir, "init-*")); len(made) > 0 {
		t.Errorf("left over: %v", made)
	}
}

func TestCrash_OrphanIsEnded(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	old := orphan(t, dir)
	s := start(t, dir)
	if s.PID() == old.Pid || running(old.Pid) {
		t.Errorf("the orphan %d still runs, the new one is %d", old.Pid, s.PID())
	}
	wantKept(t, s.ConnConfig(Database))
}

func TestCrash_ZombieNamedByPIDFile(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	old := orphan(t, dir)
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a zombie", func() bool { return !running(old.Pid) })
	wantKept(t, start(t, dir).ConnConfig(Database))
	if !alive(old.Pid) {
		t.Error("somebody reaped the zombie that this test is about")
	}
}

// A backend that doesn't notice its postmaster's death keeps the shared memory in use.
func TestCrash_StoppedBackend(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	old := orphan(t, dir)
	c := &cluster{dir: dir, data: filepath.Join(dir, "data")}
	pids, err := c.standingIn(context.Background(), c.data)
	if err != nil || len(pids) < 3 {
		t.Fatalf("%v, %v", pids, err)
	}
	stopped := 0
	for _, pid := range pids {
		if pid == old.Pid {
			continue
		}
		switch err := syscall.Kill(pid, syscall.SIGSTOP); {
		case err == nil:
			stopped++
		case !errors.Is(err, syscall.ESRCH): // one that was just ending
			t.Fatal(err)
		}
	}
	if stopped == 0 {
		t.Fatal("nothing was there to stop")
	}
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	wantKept(t, start(t, dir).ConnConfig(Database))
}

func TestCrash_PIDFileNamesAnother(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	data := filepath.Join(dir, "data")
	owner, err := accountFor(data, true)
	if err != nil {
		t.Fatal(err)
	}
	// Of the same user, which is what makes PostgreSQL itself refuse.
	bystander := exec.Command("/bin/sleep", "3600")
	bystander.SysProcAttr = owner.attributes()
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})
	for _, text := range []string{strconv.Itoa(bystander.Process.Pid) + "\n" + data + "\n1\n5432\n", "garbage", "", "-1\n", "1\n"} {
		file := filepath.Join(data, "postmaster.pid")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := owner.own(file); err != nil {
			t.Fatal(err)
		}
		s := start(t, dir)
		wantKept(t, s.ConnConfig(Database))
		stop(t, s)
	}
	if !running(bystander.Process.Pid) {
		t.Error("the bystander was killed")
	}
}

// An operator's shell may stand in the data directory.
func TestCrash_BystanderInTheDirectory(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	shell := exec.Command("/bin/sleep", "3600")
	shell.Dir = filepath.Join(dir, "data")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	old := orphan(t, dir)
	s := start(t, dir)
	wantKept(t, s.ConnConfig(Database))
	stop(t, s)
	if running(old.Pid) || !running(shell.Process.Pid) {
		t.Errorf("orphan runs: %v, bystander runs: %v", running(old.Pid), running(shell.Process.Pid))
	}
}

// A process in another pid namespace can't be seen, but it holds the file that it inherited.
func TestCrash_InvisibleServer(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	c := &cluster{dir: dir}
	hidden, err := c.lockAlive(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting := make(chan error)
	go func() {
		_, err := Start(ctx, Config{Dir: dir, Unsafe: true})
		waiting <- err
	}()
	cause := errors.New("stopped")
	cancel(cause)
	if err := <-waiting; !errors.Is(err, cause) {
		t.Fatal(err)
	}
	if err := hidden.Close(); err != nil {
		t.Fatal(err)
	}
	wantKept(t, start(t, dir).ConnConfig(Database))
}
