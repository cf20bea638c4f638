package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

func TestStoppedShimIsWokenAndEndsItsRun(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exec sleep 1000")
	st := runtest.Started(t, r)
	runtest.Freeze(t, st.PIDs.Shim.PID)
	if err := r.Kill(runtest.Bound(t), process.WhyCancelled); err != nil {
		t.Fatal(err)
	}
	if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Signal != "SIGTERM" {
		t.Fatal(runtest.Show(exit))
	}
	want(t, "agent", st.PIDs.Agent, process.Dead)
}

func TestShimThatDoesntAnswerIsKilledAndItsRunEnded(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "true", func(s *process.Spec) { s.KillGrace = 20 * time.Millisecond })
	deaf, line := helper(t, nil, "deaf", dir)
	if line != "deaf" {
		t.Fatal(line)
	}
	go func() { _ = deaf.Wait() }()
	agent := bystander(t, process.Mark+"="+dir)
	r := open(t, dir)
	if err := r.Stop(t.Context(), process.WhyCancelled); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if exit, err := r.Wait(brief); err == nil {
		t.Fatal(runtest.Show(exit))
	}
	if err := r.Kill(runtest.Bound(t), process.WhyTimeout); err != nil {
		t.Fatal(err)
	}
	want(t, "agent", agent, process.Dead)
	if st, err := r.State(); err != nil || st.Status != process.StatusDead || st.Interrupted {
		t.Errorf("%+v, %v", st, err)
	}
	if why, ok := r.StopWanted(); !ok || why != process.WhyCancelled { // the first reason stands
		t.Errorf("%v, %v", why, ok)
	}
	runtest.WantNotRun(t, work)
}

func TestKillOfARunThatIsOver(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exit 3")
	runtest.WantCode(t, runtest.Wait(t, r), 3)
	if err := r.Kill(runtest.Bound(t), process.WhyCancelled); err != nil {
		t.Error(err)
	}
	if why, ok := r.StopWanted(); ok {
		t.Error(why)
	}
	dead, _ := runtest.Start(t, "exec sleep 1000")
	st := runtest.Started(t, dead)
	killed(t, st.PIDs.Shim)
	if err := dead.Kill(runtest.Bound(t), process.WhyCancelled); err != nil {
		t.Error(err)
	}
	want(t, "agent", st.PIDs.Agent, process.Dead)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	t.Run("one that is over", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "mkdir -p $TMPDIR/a/b; chmod 500 $TMPDIR/a")
		runtest.Wait(t, r)
		wantRemoved(t, r)
	})
	t.Run("one that was forbidden", func(t *testing.T) {
		t.Parallel()
		dir, _ := runtest.Create(t, "true")
		if ok, err := process.Forbid(dir); !ok || err != nil {
			t.Fatal(ok, err)
		}
		wantRemoved(t, open(t, dir))
	})
	t.Run("one whose shim died", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "exec sleep 1000")
		st := runtest.Started(t, r)
		killed(t, st.PIDs.Shim)
		<-r.ShimGone()
		wantRemoved(t, r)
		want(t, "agent", st.PIDs.Agent, process.Dead)
	})
	t.Run("not one that lives or may start", func(t *testing.T) {
		t.Parallel()
		dir, _ := runtest.Create(t, "exec sleep 1000")
		wantNotRemoved(t, open(t, dir), process.ErrUnfinished)
		r := runtest.Launch(t, dir)
		runtest.Started(t, r)
		wantNotRemoved(t, r, process.ErrHeld)
	})
	t.Run("not one that isn't there", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "true")
		runtest.Wait(t, r)
		wantRemoved(t, r)
		wantNotRemoved(t, r, process.ErrNoRun)
	})
}

func wantRemoved(t *testing.T, r *process.Run) {
	t.Helper()
	if err := r.Remove(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(r.Spec().RunID))
	if err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}

func wantNotRemoved(t *testing.T, r *process.Run, want error) {
	t.Helper()
	before, _ := os.ReadDir(r.Spec().RunID)
	if err := r.Remove(runtest.Bound(t)); !errors.Is(err, want) {
		t.Fatal(err)
	}
	if after, _ := os.ReadDir(r.Spec().RunID); len(after) != len(before) {
		t.Fatalf("%v of %v are left", after, before)
	}
}

func names(paths []string) string {
	var found []string
	for _, path := range paths {
		found = append(found, filepath.Base(path))
	}
	return strings.Join(found, " ")
}

func TestTidyDeletesWhatIsOldAndHalf(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{".new-old", ".old-old", ".new-young", ".old-young", "run", ".other"} {
		dir := filepath.Join(runs, name)
		if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "young") {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := process.Tidy(runs); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(runs, "*"))
	if got := names(left); err != nil || got != ".new-young .old-young .other run" {
		t.Errorf("left: %s, %v", got, err)
	}
}

func TestShimErr(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "true")
	r := open(t, dir)
	if got := r.ShimErr(); got != "" {
		t.Errorf("%q", got)
	}
	leave(t, dir, "shim.err", strings.Repeat("x", 8<<10)+"\xff the end\n")
	if got := r.ShimErr(); len(got) > 4<<10+2 || !strings.HasSuffix(got, "x\uFFFD the end") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
