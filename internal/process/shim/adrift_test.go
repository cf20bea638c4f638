package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

// Its directory is gone when it ends: how it ended and what it said are to be found all the same, its output isn't.
func TestRecordIsLeftInANewDirectory(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `echo '{"orch":{"status":"ok","summary":"done"}}'; until [ -e go ]; do sleep 0.01; done; exit 3`,
		func(s *process.Spec) { s.Format = transcript.Command })
	dir, st := r.Spec().RunID, runtest.Started(t, r)
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(filepath.Join(work, "go"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	<-r.ShimGone()
	again, err := process.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	now, err := again.State()
	if err != nil || now.Status != process.StatusFinished || now.PIDs != st.PIDs || again.Spec().RunID != dir {
		t.Fatalf("%+v, %v", now, err)
	}
	runtest.WantCode(t, *now.Exit, 3)
	if now.Exit.Why != process.WhyExited || now.Exit.Error == "" || now.Exit.LogLost != now.Exit.LogBytes || now.Exit.LogBytes == 0 {
		t.Errorf("%s, %d of %d lost", runtest.Show(*now.Exit), now.Exit.LogLost, now.Exit.LogBytes)
	}
	if said, err := again.Said(); err != nil || said.Report == nil || said.Report.Summary != "done" {
		t.Errorf("%+v, %v", said, err)
	}
	if err := again.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// All run directories are gone: nobody looks for a record, and none is made.
func TestNoRecordIsLeftWhereNoRunsAre(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `until [ -e go ]; do sleep 0.01; done`)
	dir := r.Spec().RunID
	runtest.Started(t, r)
	err := errors.Join(os.RemoveAll(filepath.Dir(dir)), os.WriteFile(filepath.Join(work, "go"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	<-r.ShimGone()
	if _, err := os.Lstat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
