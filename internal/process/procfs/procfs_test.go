package procfs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

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
	st, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := Signal(Stat{PID: st.PID, Started: st.Started - 1}, unix.SIGKILL); err == nil {
		t.Error("signalled another process")
	}
	if now, err := Read(st.PID); err != nil || now.Zombie() || now.Started != st.Started {
		t.Errorf("%+v, %v", now, err)
	}
}

// That a process can't be looked at is no answer.
func TestHasPathTellsNoFromDontKnow(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	for name, want := range map[string]bool{"1000": true, "100": false} {
		if has, err := HasPath(cmd.Process.Pid, name); has != want || err != nil {
			t.Errorf("%s: %t, %v", name, has, err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if has, err := HasPath(cmd.Process.Pid, "1000"); has || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that is gone: %t, %v", has, err)
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
		if err == nil && !strings.Contains(string(raw), strconv.FormatInt(st.Started, 10)) && st.Started != 0 {
			t.Errorf("start time %d came from nowhere", st.Started)
		}
	})
}
