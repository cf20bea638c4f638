package process_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if self.PID != os.Getpid() || self.StartedAt <= 0 || self.BootID == "" || self.PIDNamespace == "" || self.Host == "" {
		t.Fatalf("self: %+v", self)
	}
	for _, tt := range []struct {
		name   string
		change func(*process.Identity)
		want   process.Verdict
	}{
		{"itself", func(*process.Identity) {}, process.Alive},
		{"reused pid", func(id *process.Identity) { id.StartedAt-- }, process.Dead},
		{"no such pid", func(id *process.Identity) { id.PID = 1 << 30 }, process.Dead},
		{"other boot", func(id *process.Identity) { id.BootID = "other" }, process.Dead},
		{"other namespace", func(id *process.Identity) { id.PIDNamespace = "other" }, process.Unknown},
		{"renamed host", func(id *process.Identity) { id.Host = "other" }, process.Alive},
		{"renamed host, reused pid", func(id *process.Identity) { id.Host, id.StartedAt = "other", 1 }, process.Dead},
		{"renamed host, other namespace", func(id *process.Identity) { id.Host, id.PIDNamespace = "other", "other" }, process.Unknown},
		{"other host and boot", func(id *process.Identity) { id.Host, id.BootID = "other", "other" }, process.Unknown},
		{"nobody", func(id *process.Identity) { *id = process.Identity{} }, process.Unknown},
	} {
		id := self
		tt.change(&id)
		if got := process.Probe(id); got != tt.want {
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
	id, err := process.IdentityOf(cmd.Process.Pid)
	if err != nil || process.Probe(id) != process.Alive {
		t.Fatalf("%+v, %v", id, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "zombie", func() bool { return process.Probe(id) == process.Dead })
	if err := unix.Kill(id.PID, 0); err != nil { // not reaped: it still takes signals
		t.Errorf("signal a zombie: %v", err)
	}
	if err := process.WaitExit(runtest.Bound(t), id); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if got := process.Probe(id); got != process.Dead {
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

func TestProbeWithoutASightOfOthers(t *testing.T) {
	t.Parallel()
	living, gone := bystander(t), reaped(t)
	for _, tt := range []struct {
		how          string
		living, gone process.Verdict
		rootOnly     bool
	}{
		{"hidden", process.Alive, process.Dead, true}, // only root makes processes of somebody else's
		{"none", process.Unknown, process.Unknown, false},
	} {
		if tt.rootOnly && os.Getuid() != 0 {
			continue
		}
		for id, want := range map[process.Identity]process.Verdict{living: tt.living, gone: tt.gone} {
			raw, err := json.Marshal(id)
			if err != nil {
				t.Fatal(err)
			}
			_, line := helper(t, func(cmd *exec.Cmd) {
				inNamespace(cmd)
				cmd.SysProcAttr.Cloneflags &^= unix.CLONE_NEWPID
				cmd.Env = append(os.Environ(), "PROC="+tt.how)
			}, "blind", string(raw))
			if line != string(want)+" true" {
				t.Errorf("/proc %s: %s, want %s", tt.how, line, want)
			}
		}
	}
}

// Such as in a namespace that was made without a mount of its own: there each living process would seem dead, and the pids of
// those that are to be ended would be others'.
func TestProcOfAnotherNamespaceIsNotBelieved(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(reaped(t))
	if err != nil {
		t.Fatal(err)
	}
	_, line := helper(t, func(cmd *exec.Cmd) {
		inNamespace(cmd)
		cmd.SysProcAttr.Cloneflags &^= unix.CLONE_NEWNS
	}, "misled", string(raw))
	if line != "true unknown" {
		t.Errorf("misled: %s", line)
	}
}

func TestNamespacesThatGetTheSameNumberDiffer(t *testing.T) {
	t.Parallel()
	// Several, one after the other: at least as likely as not the kernel gives the same number again.
	seen := map[string]bool{}
	for range 5 {
		first := namespaced(t, process.Identity{})
		if seen[first.self.PIDNamespace] {
			t.Fatalf("two namespaces are %s", first.self.PIDNamespace)
		}
		seen[first.self.PIDNamespace] = true
		if first.verdict != process.Dead {
			t.Errorf("a process of a namespace that had the same number is %s", first.verdict)
		}
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if got := namespaced(t, self); got.verdict != process.Unknown {
		t.Errorf("a process of a namespace with another number is %s", got.verdict)
	}
}

type sight struct {
	self    process.Identity
	verdict process.Verdict
}

// namespaced says who is seen how from a pid namespace of its own; nobody: a process of one that had its number before.
func namespaced(t *testing.T, of process.Identity) sight {
	t.Helper()
	raw, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	cmd, line := helper(t, inNamespace, "namespaced", string(raw))
	_ = cmd.Wait() // its namespace is gone, and the number free
	var seen sight
	if err := json.Unmarshal([]byte(line), &[]any{&seen.self, &seen.verdict}); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return seen
}

// reaped names a process that has ended.
func reaped(t *testing.T) process.Identity {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := process.IdentityOf(cmd.Process.Pid)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	return id
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
