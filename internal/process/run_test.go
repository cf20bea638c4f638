package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestShimKilled(t *testing.T) {
	t.Parallel()
	r, work := start(t, `(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); sh -c 'echo $$ > child; exec env -u ORCH_RUN sleep 1000' & sleep 1000`)
	st := started(t, r)
	daemon, child := pidIn(t, filepath.Join(work, "daemon")), pidIn(t, filepath.Join(work, "child"))
	if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(bound(t)); !errors.Is(err, ErrShimDead) {
		t.Fatalf("wait: %v", err)
	}
	for name, id := range map[string]Identity{"agent": st.PIDs.Agent, "daemon": daemon, "child without the mark": child} {
		if v := Probe(id); v != Dead {
			t.Errorf("%s is %s", name, v)
		}
	}
	if st, err := r.State(); err != nil || st.Status != StatusDead || st.Rebooted {
		t.Errorf("state: %+v, %v", st, err)
	}
	if ok, err := r.Forbid(); ok || err != nil { // it did start
		t.Errorf("forbid: %v, %v", ok, err)
	}
	for range recoverLog(t, r) {
		t.Error("a run without output has a log")
	}
}

func recoverLog(t *testing.T, r *Run) []Chunk {
	t.Helper()
	var chunks []Chunk
	for chunk, err := range r.Log().Follow(bound(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}

func TestLauncherKilled(t *testing.T) {
	t.Parallel()
	dir, work := create(t, "echo first; until [ -e go ]; do sleep 0.01; done; echo last; exit 5")
	launcher, line := helper(t, nil, "launcher", dir)
	if line != "launched" {
		t.Fatal(line)
	}
	r, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endShim(t, r) })
	before := started(t, r)
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()
	after := started(t, r)
	if after.Status != StatusAlive || after.PIDs != before.PIDs || Probe(after.PIDs.Agent) != Alive {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, wait(t, r), 5)
	if got := output(t, r); got != "first\nlast\n" {
		t.Fatalf("output %q", got)
	}
}

func TestForbid(t *testing.T) {
	t.Parallel()
	t.Run("a late shim starts nothing", func(t *testing.T) {
		t.Parallel()
		dir, work := create(t, "echo > ran")
		for range 2 {
			if ok, err := Forbid(dir); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		r := launch(t, dir)
		if exit := wait(t, r); exit.Why != WhyNeverStarted {
			t.Fatal(show(exit))
		}
		<-r.shimGone
		wantNotRun(t, work)
	})
	t.Run("a directory that was never made", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "run")
		if ok, err := Forbid(dir); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := Create(dir, Spec{RunID: "x", Argv: []string{"true"}, Dir: "/"}, nil); !errors.Is(err, ErrExists) {
			t.Fatalf("late create: %v", err)
		}
		r, err := OpenRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, r); exit.Why != WhyNeverStarted {
			t.Fatal(show(exit))
		}
	})
	t.Run("a run that lives or has ended", func(t *testing.T) {
		t.Parallel()
		r, work := start(t, "until [ -e go ]; do sleep 0.01; done")
		started(t, r)
		if ok, err := r.Forbid(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantCode(t, wait(t, r), 0)
		if ok, err := r.Forbid(); ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	t.Run("a race has one winner", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			dir, work := create(t, "echo > ran")
			var lookers sync.WaitGroup
			done := make(chan struct{})
			for range 3 { // whoever looks must not decide the race
				lookers.Go(func() {
					look := &Run{dir: dir}
					for {
						select {
						case <-done:
							return
						default:
							if st, err := look.State(); err != nil || st.Status == StatusDead {
								t.Errorf("looks %s, %v", st.Status, err)
								return
							}
						}
					}
				})
			}
			r := launch(t, dir)
			forbidden, err := Forbid(dir)
			if err != nil {
				t.Fatal(err)
			}
			exit := wait(t, r)
			close(done)
			lookers.Wait()
			if forbidden != (exit.Why == WhyNeverStarted) {
				t.Fatalf("forbidden %v, but %s", forbidden, show(exit))
			}
			if _, err := os.Stat(filepath.Join(work, "ran")); (err == nil) == forbidden {
				t.Fatalf("forbidden %v, but ran: %v", forbidden, err)
			}
		}
	})
}

func TestStartBy(t *testing.T) {
	t.Parallel()
	dir, work := create(t, "echo > ran", startBy(BootClock()-1))
	if exit := wait(t, launch(t, dir)); exit.Why != WhyNeverStarted {
		t.Fatal(show(exit))
	}
	wantNotRun(t, work)
}

func TestSecondShimStartsNothing(t *testing.T) {
	t.Parallel()
	dir, work := create(t, "echo >> ran; until [ -e go ]; do sleep 0.01; done")
	first := launch(t, dir)
	started(t, first)
	second := launch(t, dir)
	<-second.shimGone
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, wait(t, first), 0)
	third := launch(t, dir)
	<-third.shimGone
	if raw, err := os.ReadFile(filepath.Join(work, "ran")); err != nil || string(raw) != "\n" {
		t.Fatalf("ran %q, %v", raw, err)
	}
}

func TestShimThatCantBegin(t *testing.T) {
	t.Parallel()
	dir, _ := create(t, "true")
	r, err := Launch(t.Context(), []string{"false"}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(bound(t)); !errors.Is(err, ErrNoShim) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := r.WaitStarted(bound(t)); !errors.Is(err, ErrNoShim) {
		t.Fatalf("wait for start: %v", err)
	}
	if ok, err := r.Forbid(); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestRunsOfOthers(t *testing.T) {
	t.Parallel()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Identity)
		status Status
	}{
		{"same boot", func(*Identity) {}, StatusDead},
		{"other boot", func(id *Identity) { id.BootID = "x" }, StatusDead},
		{"other namespace", func(id *Identity) { id.PIDNamespace = "x" }, StatusUnknown},
		{"other host", func(id *Identity) { id.Host = "x" }, StatusUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, _ := create(t, "true")
			pids := PIDs{Shim: self, Agent: self}
			pids.Shim.PID, pids.Agent.PID = 1<<30, 1<<30 // no such processes
			tt.change(&pids.Shim)
			if err := writeJSON(dir, pidFile, pids); err != nil {
				t.Fatal(err)
			}
			r, err := OpenRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			st, err := r.State()
			if err != nil || st.Status != tt.status || st.Rebooted != (tt.name == "other boot") {
				t.Fatalf("%+v, %v", st, err)
			}
			_, err = r.Wait(bound(t))
			if want := map[Status]error{StatusDead: ErrShimDead, StatusUnknown: ErrUnknown}[tt.status]; !errors.Is(err, want) {
				t.Fatalf("wait: %v", err)
			}
		})
	}
}

func TestOpenRunOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := OpenRun(filepath.Join(t.TempDir(), "run")); !errors.Is(err, ErrNoRun) {
		t.Fatal(err)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dir, _ := create(t, "true")
	if err := Create(dir, Spec{RunID: "x", Argv: []string{"true"}, Dir: "/"}, nil); !errors.Is(err, ErrExists) {
		t.Errorf("second create: %v", err)
	}
	for _, spec := range []Spec{{}, {RunID: "x"}, {RunID: "x", Argv: []string{"true"}, Dir: "relative"}, {RunID: "x", Argv: []string{"true"}, Dir: "/", Timeout: -1}} {
		if err := Create(filepath.Join(t.TempDir(), "run"), spec, nil); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil || !strings.Contains(string(raw), `"argv"`) {
		t.Errorf("spec %s, %v", raw, err)
	}
}
