package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

func TestShimKilled(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); sh -c 'echo $$ > child; exec env -u ORCH_RUN sleep 1000' & sleep 1000`)
	st := runtest.Started(t, r)
	daemon, child := runtest.PIDIn(t, filepath.Join(work, "daemon")), runtest.PIDIn(t, filepath.Join(work, "child"))
	if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantShimDead(t, r)
	for name, id := range map[string]process.Identity{"agent": st.PIDs.Agent, "daemon": daemon, "child without the mark": child} {
		if v := process.Probe(id); v != process.Dead {
			t.Errorf("%s is %s", name, v)
		}
	}
	if st, err := r.State(); err != nil || st.Status != process.StatusDead || st.Interrupted {
		t.Errorf("state: %+v, %v", st, err)
	}
	if ok, err := r.Forbid(); ok || err != nil { // it did start
		t.Errorf("forbid: %v, %v", ok, err)
	}
	for range recoverLog(t, r) {
		t.Error("a run without output has a log")
	}
}

func recoverLog(t *testing.T, r *process.Run) []process.Chunk {
	t.Helper()
	var chunks []process.Chunk
	for chunk, err := range r.Log().Follow(runtest.Bound(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}

func TestLauncherKilled(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "echo first; until [ -e go ]; do sleep 0.01; done; echo last; exit 5")
	launcher, line := helper(t, nil, "launcher", dir)
	if line != "launched" {
		t.Fatal(line)
	}
	r, err := process.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtest.End(t, r) })
	before := runtest.Started(t, r)
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()
	after := runtest.Started(t, r)
	if after.Status != process.StatusAlive || after.PIDs != before.PIDs || process.Probe(after.PIDs.Agent) != process.Alive {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runtest.WantCode(t, runtest.Wait(t, r), 5)
	if got := runtest.Output(t, r); got != "first\nlast\n" {
		t.Fatalf("output %q", got)
	}
}

func TestForbid(t *testing.T) {
	t.Parallel()
	t.Run("a late shim starts nothing", func(t *testing.T) {
		t.Parallel()
		dir, work := runtest.Create(t, "echo > ran")
		for range 2 {
			if ok, err := process.Forbid(dir); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		r := runtest.Launch(t, dir)
		if exit := runtest.Wait(t, r); exit.Why != process.WhyNeverStarted {
			t.Fatal(runtest.Show(exit))
		}
		<-r.ShimGone()
		runtest.WantNotRun(t, work)
	})
	t.Run("a directory that was never made", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "run")
		if ok, err := process.Forbid(dir); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := process.Create(dir, process.Spec{RunID: "x", Argv: []string{"true"}, Dir: "/"}, nil); !errors.Is(err, process.ErrExists) {
			t.Fatalf("late create: %v", err)
		}
		r, err := process.OpenRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if exit := runtest.Wait(t, r); exit.Why != process.WhyNeverStarted {
			t.Fatal(runtest.Show(exit))
		}
	})
	t.Run("a run that lives or has ended", func(t *testing.T) {
		t.Parallel()
		r, work := runtest.Start(t, "until [ -e go ]; do sleep 0.01; done")
		runtest.Started(t, r)
		if ok, err := r.Forbid(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		runtest.WantCode(t, runtest.Wait(t, r), 0)
		if ok, err := r.Forbid(); ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		dir, _ := runtest.Create(t, "true")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if ok, err := process.Forbid(dir); !ok || err != nil {
					t.Error(ok, err)
				}
			})
		}
		all.Wait()
	})
	t.Run("a dead run looks dead meanwhile", func(t *testing.T) {
		t.Parallel()
		r, _ := runtest.Start(t, "sleep 1000")
		if err := unix.Kill(runtest.Started(t, r).PIDs.Shim.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrShimDead) {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			for range 2000 {
				if ok, err := r.Forbid(); ok || err != nil {
					t.Error(ok, err)
					return
				}
			}
		})
		for range 2000 {
			if st, err := r.State(); err != nil || st.Status != process.StatusDead {
				t.Errorf("looks %s, %v", st.Status, err)
				break
			}
		}
		both.Wait()
	})
	t.Run("a race has one winner", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			dir, work := runtest.Create(t, "echo > ran")
			var lookers sync.WaitGroup
			done := make(chan struct{})
			for range 3 { // whoever looks must not decide the race
				lookers.Go(func() {
					look, err := process.OpenRun(dir)
					if err != nil {
						t.Error(err)
						return
					}
					for {
						select {
						case <-done:
							return
						default:
							if st, err := look.State(); err != nil || st.Status == process.StatusDead {
								t.Errorf("looks %s, %v", st.Status, err)
								return
							}
						}
					}
				})
			}
			r := runtest.Launch(t, dir)
			forbidden, err := process.Forbid(dir)
			if err != nil {
				t.Fatal(err)
			}
			exit := runtest.Wait(t, r)
			close(done)
			lookers.Wait()
			if forbidden != (exit.Why == process.WhyNeverStarted) {
				t.Fatalf("forbidden %v, but %s", forbidden, runtest.Show(exit))
			}
			if _, err := os.Stat(filepath.Join(work, "ran")); (err == nil) == forbidden {
				t.Fatalf("forbidden %v, but ran: %v", forbidden, err)
			}
		}
	})
}

func TestStartBy(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "echo > ran", func(s *process.Spec) { s.StartBy = process.BootClock() - 1 })
	if exit := runtest.Wait(t, runtest.Launch(t, dir)); exit.Why != process.WhyNeverStarted {
		t.Fatal(runtest.Show(exit))
	}
	runtest.WantNotRun(t, work)
}

func TestSecondShimStartsNothing(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "echo >> ran; until [ -e go ]; do sleep 0.01; done")
	first := runtest.Launch(t, dir)
	runtest.Started(t, first)
	second := runtest.Launch(t, dir)
	<-second.ShimGone()
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runtest.WantCode(t, runtest.Wait(t, first), 0)
	third := runtest.Launch(t, dir)
	<-third.ShimGone()
	if raw, err := os.ReadFile(filepath.Join(work, "ran")); err != nil || string(raw) != "\n" {
		t.Fatalf("ran %q, %v", raw, err)
	}
}

func TestShimThatCantBegin(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "true")
	r, err := process.Launch(t.Context(), []string{"false"}, dir, process.Bundle{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrNoShim) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := r.WaitStarted(runtest.Bound(t)); !errors.Is(err, process.ErrNoShim) {
		t.Fatalf("wait for start: %v", err)
	}
	if ok, err := r.Forbid(); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestOpenRunOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := process.OpenRun(filepath.Join(t.TempDir(), "run")); !errors.Is(err, process.ErrNoRun) {
		t.Fatal(err)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "true")
	if err := process.Create(dir, process.Spec{RunID: "x", Argv: []string{"true"}, Dir: "/"}, nil); !errors.Is(err, process.ErrExists) {
		t.Errorf("second create: %v", err)
	}
	for _, spec := range []process.Spec{{}, {RunID: "x"}, {RunID: "x", Argv: []string{"true"}, Dir: "relative"}, {RunID: "x", Argv: []string{"true"}, Dir: "/", Timeout: -1}} {
		if err := process.Create(filepath.Join(t.TempDir(), "run"), spec, nil); !errors.Is(err, process.ErrBadSpec) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "spec.json"))
	if err != nil || !strings.Contains(string(raw), `"argv"`) {
		t.Errorf("spec %s, %v", raw, err)
	}
}
