package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/cgroup"
	"orch/internal/process/runtest"
)

// TestCgroupFindsWhatNothingElseDoes starts a daemon that has left everything by which it could be known. Where a run can
// have a cgroup, it is ended with what its dead shim left; elsewhere this stays beyond reach.
func TestCgroupFindsWhatNothingElseDoes(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `(setsid env -i /bin/sh -c 'echo $$ > daemon; exec /bin/sleep 1000' &); sleep 1000`)
	daemon := runtest.PIDIn(t, filepath.Join(work, "daemon"))
	t.Cleanup(func() { _ = unix.Kill(daemon.PID, unix.SIGKILL) })
	st := runtest.Started(t, r)
	want := process.Alive
	if st.PIDs.Cgroup != "" {
		want = process.Dead
		if in := cgroup.Processes(st.PIDs.Cgroup); !in[daemon.PID] || !in[st.PIDs.Agent.PID] || in[st.PIDs.Shim.PID] {
			t.Fatalf("%v in %s", in, st.PIDs.Cgroup)
		}
	}
	if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.ShimGone()
	if err := r.EndRemains(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	if got := process.Probe(daemon); got != want {
		t.Errorf("daemon is %s; cgroup %q", got, st.PIDs.Cgroup)
	}
	wantNoCgroup(t, st)
}

func TestCgroupEndsWithItsRun(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `until [ -e go ]; do sleep 0.01; done; exit 3`)
	st := runtest.Started(t, r)
	if st.PIDs.Cgroup != "" { // as a program may do
		if err := os.Mkdir(filepath.Join(st.PIDs.Cgroup, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	leave(t, work, "go", "")
	runtest.WantCode(t, runtest.Wait(t, r), 3)
	<-r.ShimGone()
	wantNoCgroup(t, st)
}

func wantNoCgroup(t *testing.T, st process.State) {
	t.Helper()
	if st.PIDs.Cgroup == "" {
		return
	}
	if _, err := os.Stat(st.PIDs.Cgroup); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", st.PIDs.Cgroup, err)
	}
}
