package process_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/procfs"
	"orch/internal/process/runtest"
)

// Wherever its start was when the shim is killed: one verdict, and nothing that runs on.
func TestShimKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	verdicts := map[string]int{}
	var ids []string
	for n := range 40 {
		dir, _ := runtest.Create(t, "exec sleep 1000")
		ids = append(ids, dir)
		r := runtest.Launch(t, dir)
		if n%3 == 0 {
			<-time.After(rand.N(20 * time.Millisecond))
			killShim(t, dir)
		} else { // about when it starts the program
			killNamed(t, r, rand.N(4*time.Millisecond))
		}
		<-r.ShimGone()
		verdicts[settle(t, r)]++
	}
	t.Logf("verdicts: %v", verdicts)
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		for _, id := range ids {
			if procfs.HasEnv(st.PID, process.Mark+"="+id) && !st.Zombie() {
				t.Errorf("process %d of %s lives on", st.PID, id)
			}
		}
	}
}

func killNamed(t *testing.T, r *process.Run, after time.Duration) {
	t.Helper()
	for {
		st, err := r.State()
		if err != nil {
			t.Fatal(err)
		}
		if shim := st.PIDs.Shim; shim.PID > 0 {
			<-time.After(after)
			_ = procfs.Signal(procfs.Stat{PID: shim.PID, Started: shim.StartedAt}, unix.SIGKILL)
			return
		}
	}
}

// killShim finds the shim by its command line: it may not have named itself yet.
func killShim(t *testing.T, dir string) {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if st.Session == st.PID && procfs.HasArg(st.PID, dir) {
			_ = procfs.Signal(st, unix.SIGKILL)
		}
	}
}

func settle(t *testing.T, r *process.Run) string {
	t.Helper()
	switch _, err := r.Wait(runtest.Bound(t)); {
	case errors.Is(err, process.ErrNoShim):
		if ok, err := r.Forbid(); !ok || err != nil {
			t.Errorf("forbid: %v, %v", ok, err)
		}
		return "never started"
	case errors.Is(err, process.ErrShimDead):
		if err := r.EndRemains(runtest.Bound(t)); err != nil {
			t.Error(err)
		}
		return "dead"
	default:
		t.Errorf("wait: %v", err)
		return "other"
	}
}
