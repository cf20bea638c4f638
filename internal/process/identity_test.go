package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if self.PID != os.Getpid() || self.StartedAt <= 0 || self.BootID == "" || self.PIDNamespace == "" || self.Host == "" {
		t.Fatalf("self: %+v", self)
	}
	for _, tt := range []struct {
		name   string
		change func(*Identity)
		want   Verdict
	}{
		{"itself", func(*Identity) {}, Alive},
		{"reused pid", func(id *Identity) { id.StartedAt-- }, Dead},
		{"no such pid", func(id *Identity) { id.PID = 1 << 30 }, Dead},
		{"other boot", func(id *Identity) { id.BootID = "other" }, Dead},
		{"other namespace", func(id *Identity) { id.PIDNamespace = "other" }, Unknown},
		{"other host", func(id *Identity) { id.Host = "other" }, Unknown},
		{"other host and boot", func(id *Identity) { id.Host, id.BootID = "other", "other" }, Unknown},
		{"nobody", func(id *Identity) { *id = Identity{} }, Unknown},
	} {
		id := self
		tt.change(&id)
		if got := Probe(id); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestProbeOfAZombie(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := IdentityOf(cmd.Process.Pid)
	if err != nil || Probe(id) != Alive {
		t.Fatalf("%+v, %v", id, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "zombie", func() bool { return Probe(id) == Dead })
	if err := unix.Kill(id.PID, 0); err != nil { // not reaped: it still takes signals
		t.Errorf("signal a zombie: %v", err)
	}
	if err := waitExit(bound(t), id); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if got := Probe(id); got != Dead {
		t.Error(got)
	}
}

func TestProbeOfSomeoneElsesProcess(t *testing.T) {
	t.Parallel()
	// As root, look with another user's eyes; else init isn't ours anyway.
	_, line := helper(t, func(cmd *exec.Cmd) {
		if os.Getuid() == 0 {
			const nobody = 65534
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			cmd.Path = copyForAll(t)
		}
	}, "probe", "1")
	if line != "alive true <nil>" {
		t.Fatal(line)
	}
}

// copyForAll puts this test binary where every user may run it.
func copyForAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "probe") //nolint:usetesting // other users can't get into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := dir + "/probe"
	// Not by this process: a child being forked would hold the copy open for writing, and so keep it from being run.
	if out, err := exec.Command("cp", os.Args[0], path).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	for _, p := range []string{dir, path} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestSignalSparesALaterOwner(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	id, err := IdentityOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := sendSignal(stat{pid: id.PID, started: id.StartedAt - 1}, unix.SIGKILL); err == nil {
		t.Error("signalled another process")
	}
	if got := Probe(id); got != Alive {
		t.Error(got)
	}
}

func FuzzParseStat(f *testing.F) {
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("7 (a) b (c) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 123 0"))
	f.Add([]byte("7 (x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		st, err := parseStat(7, raw)
		if err == nil && !strings.Contains(string(raw), strconv.FormatInt(st.started, 10)) && st.started != 0 {
			t.Errorf("start time %d came from nowhere", st.started)
		}
	})
}
