package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// adrift starts a run that waits for a file, in a directory of a name of its own, and takes the directory away.
func adrift(t *testing.T) (dir string, pids process.PIDs, letGo func()) {
	t.Helper()
	made, work := runtest.Create(t, `until [ -e go ]; do sleep 0.01; done`)
	dir = filepath.Join(filepath.Dir(made), uuid.NewString())
	if err := os.Rename(made, dir); err != nil {
		t.Fatal(err)
	}
	r := runtest.Launch(t, dir)
	pids = runtest.Started(t, r).PIDs
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return dir, pids, func() {
		if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
		_ = process.Wake(pids.Shim)
		<-r.ShimGone()
	}
}

func TestShimIsFoundWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	dir, pids, letGo := adrift(t)
	other := filepath.Join(filepath.Dir(dir), uuid.NewString())
	for what, tt := range map[string]struct {
		dir  string
		pid  int
		want process.Identity
	}{
		"by its pid":             {dir, pids.Shim.PID, pids.Shim},
		"by its argument":        {dir, 0, pids.Shim},
		"by another path":        {"/elsewhere/" + filepath.Base(dir), 0, pids.Shim},
		"its program isn't it":   {dir, pids.Agent.PID, process.Identity{}},
		"of another run":         {other, 0, process.Identity{}},
		"a pid with a new owner": {other, pids.Shim.PID, process.Identity{}},
	} {
		if got, err := process.ShimOf(tt.dir, tt.pid); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	letGo()
	for _, pid := range []int{0, pids.Shim.PID} {
		if got, err := process.ShimOf(dir, pid); err != nil || !got.IsZero() {
			t.Errorf("gone: %+v, %v", got, err)
		}
	}
	if _, err := process.OpenRun(dir); err != nil { // what it has left since
		t.Error(err)
	}
}

func TestShimAdriftIsStopped(t *testing.T) {
	t.Parallel()
	dir, pids, letGo := adrift(t)
	defer letGo()
	runtest.Freeze(t, pids.Shim.PID)
	gone, err := process.StopAdrift(t.Context(), pids.Shim, runtest.Patience)
	if err != nil || !gone {
		t.Fatal(gone, err)
	}
	if v := process.Probe(pids.Agent); v != process.Dead {
		t.Errorf("its program is %s", v)
	}
	st, err := mustOpen(t, dir).State()
	if err != nil || st.Status != process.StatusFinished || st.Exit.Why != process.WhyInterrupted {
		t.Errorf("%+v, %v", st, err)
	}
	if gone, err := process.StopAdrift(t.Context(), pids.Shim, time.Nanosecond); err != nil || !gone {
		t.Errorf("again: %v, %v", gone, err)
	}
}

// Somebody has deleted all that is in it, and its shim has left its record since.
func TestEmptiedDirectoryWithARecordIsARun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := process.OpenRun(dir); !errors.Is(err, process.ErrNoRun) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "exit.json"), []byte(`{"code":3,"why":"exited"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := mustOpen(t, dir).State(); err != nil || st.Status != process.StatusFinished || *st.Exit.Code != 3 {
		t.Errorf("%+v, %v", st, err)
	}
}

func mustOpen(t *testing.T, dir string) *process.Run {
	t.Helper()
	r, err := process.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
