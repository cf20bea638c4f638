package process_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// leave writes a file of a run directory, as something that isn't a shim would.
func leave(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *process.Run {
	t.Helper()
	r, err := process.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bystander is a process that leads its own group and session, as a shim or an agent may.
func bystander(t *testing.T, env ...string) process.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id, err := process.IdentityOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRunsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		change      func(*process.Identity)
		want        process.Status
		interrupted bool
	}{
		{"same boot", func(*process.Identity) {}, process.StatusDead, false},
		{"renamed host", func(id *process.Identity) { id.Host = "x" }, process.StatusDead, false},
		{"other boot", func(id *process.Identity) { id.BootID = "x" }, process.StatusDead, true},
		{"other namespace", func(id *process.Identity) { id.PIDNamespace = "x" }, process.StatusForeign, true},
		{"other boot under another name", func(id *process.Identity) { id.Host, id.BootID, id.PIDNamespace = "x", "x", "x" }, process.StatusDead, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, _ := runtest.Create(t, "true")
			marked, other := bystander(t, process.Mark+"="+dir), bystander(t)
			pids := process.PIDs{Shim: other, Agent: other}
			if !tt.interrupted {
				pids.Shim.PID, pids.Agent.PID = 1<<30, 1<<30 // no such processes
			}
			tt.change(&pids.Shim)
			tt.change(&pids.Agent)
			raw, err := json.Marshal(pids)
			if err != nil {
				t.Fatal(err)
			}
			leave(t, dir, "pid.json", string(raw))
			r := open(t, dir)
			st, err := r.State()
			if err != nil || st.Status != tt.want || st.Interrupted != tt.interrupted {
				t.Fatalf("%+v, %v", st, err)
			}
			wantShimDead := map[process.Status]error{process.StatusDead: process.ErrShimDead, process.StatusForeign: process.ErrForeign}
			if _, err = r.Wait(runtest.Bound(t)); !errors.Is(err, wantShimDead[tt.want]) {
				t.Fatalf("wait: %v", err)
			}
			if v := process.Probe(marked); v != process.Alive {
				t.Errorf("after the wait the marked process is %s", v)
			}
			if err := r.EndRemains(runtest.Bound(t)); err != nil {
				t.Fatal(err)
			}
			if v := process.Probe(marked); v != process.Dead {
				t.Errorf("marked process is %s", v)
			}
			if v := process.Probe(other); v != process.Alive {
				t.Errorf("process with a pid of another place is %s", v)
			}
		})
	}
}

func TestLockThatCantBeExamined(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exec sleep 1000")
	runtest.Started(t, r)
	lock := filepath.Join(r.Spec().RunID, "lock")
	if err := os.Rename(lock, lock+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("lock", lock); err != nil { // even root can't open that
		t.Fatal(err)
	}
	st, err := r.State()
	if err != nil || st.Status != process.StatusUnknown || !errors.Is(st.Doubt, unix.ELOOP) {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrUnknown) {
		t.Errorf("wait: %v", err)
	}
	if err := os.Rename(lock+".away", lock); err != nil {
		t.Fatal(err)
	}
	if st, err := r.State(); err != nil || st.Status != process.StatusAlive {
		t.Errorf("%+v, %v", st, err)
	}
}

// garbage is what no shim writes, by file.
var garbage = map[string][]string{
	"exit.json": {"", "{\"why\":\"exi", "\x00\x00\x00\x00", "{}", "null", "[]", `{"why":"\u0000"}`, `{"why":"exited","code":99999999999}`, `{"why":"exited","signal":"x"}`},
	"pid.json":  {"", "{\"shim\":{\"pid\":1", "\x00\x00\x00\x00", "{}", "null", "[]", `{"shim":{"pid":-1,"boot_id":"x"}}`},
}

func TestGarbageOfADeadShim(t *testing.T) {
	t.Parallel()
	for name, contents := range garbage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, work := runtest.Start(t, `(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); sleep 1000`)
			st := runtest.Started(t, r)
			daemon := runtest.PIDIn(t, filepath.Join(work, "daemon"))
			dir := r.Spec().RunID
			if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-r.ShimGone()
			for _, content := range contents {
				leave(t, dir, name, content)
				st, err := open(t, dir).State()
				if err != nil || st.Status != process.StatusDead || st.Interrupted || st.Exit != nil {
					t.Fatalf("%q: %+v, %v", content, st, err)
				}
				if ok, err := r.Forbid(); ok || err != nil { // it did start
					t.Fatalf("%q: forbid: %v, %v", content, ok, err)
				}
			}
			wantShimDead(t, r)
			for name, id := range map[string]process.Identity{"agent": st.PIDs.Agent, "daemon": daemon} {
				if v := process.Probe(id); v != process.Dead {
					t.Errorf("%s is %s", name, v)
				}
			}
		})
	}
}

func TestGarbageIsNoEndOfALivingShim(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, "until [ -e go ]; do sleep 0.01; done; exit 5")
	before := runtest.Started(t, r)
	for name, contents := range garbage {
		for _, content := range contents {
			leave(t, r.Spec().RunID, name, content)
			st, err := r.State()
			if err != nil || st.Status != process.StatusAlive {
				t.Fatalf("%s %q: %+v, %v", name, content, st, err)
			}
			if ok, err := r.Forbid(); ok || err != nil {
				t.Fatalf("%s %q: forbid: %v, %v", name, content, ok, err)
			}
		}
	}
	if st, err := r.WaitStarted(runtest.Bound(t)); err != nil || st.Status != process.StatusAlive {
		t.Fatalf("wait for start: %+v, %v", st, err)
	}
	if v := process.Probe(before.PIDs.Agent); v != process.Alive {
		t.Fatalf("agent is %s", v)
	}
	leave(t, work, "go", "")
	runtest.WantCode(t, runtest.Wait(t, r), 5)
}

func TestStopWithoutTheShimsPID(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exec sleep 1000")
	runtest.Started(t, r)
	leave(t, r.Spec().RunID, "pid.json", "{")
	if err := r.Stop(runtest.Bound(t), process.WhyCancelled); err != nil {
		t.Fatal(err)
	}
	if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Signal != "SIGTERM" {
		t.Fatal(runtest.Show(exit))
	}
}

func TestGarbledSpec(t *testing.T) {
	t.Parallel()
	for name, garble := range map[string]func(t *testing.T, path string){
		"torn": func(t *testing.T, path string) {
			t.Helper()
			leave(t, filepath.Dir(path), "spec.json", "{\"run_id\":")
		},
		"no file": func(t *testing.T, path string) {
			t.Helper()
			if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, work := runtest.Create(t, "echo > ran")
			garble(t, filepath.Join(dir, "spec.json"))
			r := runtest.Launch(t, dir)
			if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrNoShim) {
				t.Fatalf("wait: %v", err)
			}
			if ok, err := open(t, dir).Forbid(); !ok || err != nil {
				t.Fatalf("forbid: %v, %v", ok, err)
			}
			runtest.WantNotRun(t, work)
		})
	}
	t.Run("of a dead shim", func(t *testing.T) {
		t.Parallel()
		dir, _ := runtest.Create(t, "true")
		marked := bystander(t, process.Mark+"="+filepath.Base(dir))
		leave(t, dir, "spec.json", "{")
		leave(t, dir, "pid.json", "{")
		wantShimDead(t, open(t, dir))
		if v := process.Probe(marked); v != process.Dead {
			t.Errorf("marked process is %s", v)
		}
	})
}

func TestShimAfterGarbage(t *testing.T) {
	t.Parallel()
	for name := range garbage {
		dir, work := runtest.Create(t, "echo > ran")
		leave(t, dir, name, "{")
		r := runtest.Launch(t, dir)
		<-r.ShimGone()
		if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrShimDead) {
			t.Errorf("%s: wait: %v", name, err)
		}
		runtest.WantNotRun(t, work) // one may have run it before
	}
}
