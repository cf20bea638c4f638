package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
)

// left starts a run that waits and that nobody follows any more, and gives the job back.
func (b *bench) left(t *testing.T) Run {
	t.Helper()
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	run := b.running(t)
	eventually(t, "its first output", func() bool {
		log, err := b.runs.OpenLog(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		size, err := log.Size()
		return err == nil && size == int64(len("first\n"))
	})
	l.BeginStop()
	if got := <-answers; !errors.Is(got.err, queue.ErrStopping) {
		t.Fatalf("%+v", got)
	}
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	return run
}

// orphaned is left, and its shim is killed.
func (b *bench) orphaned(t *testing.T) Run {
	t.Helper()
	run := b.left(t)
	b.killShim(t, run.ID)
	return run
}

// killShim returns when the lock is free: the process seems gone a little earlier, while its last thread is ending.
func (b *bench) killShim(t *testing.T, id uuid.UUID) {
	t.Helper()
	shim, err := process.OpenRun(filepath.Join(b.dir, id.String()))
	if err != nil {
		t.Fatal(err)
	}
	st, err := shim.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shim's end", func() bool {
		st, err := shim.State()
		return err == nil && st.Status == process.StatusDead
	})
}

// put writes a file into a run directory.
func (b *bench) put(t *testing.T, id uuid.UUID, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, id.String(), name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// moved makes a run one of another place.
func (b *bench) moved(t *testing.T, id uuid.UUID, change func(*process.Identity)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, id.String(), "pid.json"))
	var pids process.PIDs
	if err = errors.Join(err, json.Unmarshal(raw, &pids)); err != nil {
		t.Fatal(err)
	}
	change(&pids.Shim)
	change(&pids.Agent)
	if raw, err = json.Marshal(pids); err != nil {
		t.Fatal(err)
	}
	b.put(t, id, "pid.json", string(raw))
}

func otherNamespace(id *process.Identity) { id.PIDNamespace = "pid:[1]" }

func otherBoot(id *process.Identity) {
	id.Host, id.BootID, id.PIDNamespace = "other", "other", "pid:[1]"
}

func TestRestartedContainer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*process.Identity){"other namespace": otherNamespace, "other boot and host": otherBoot} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			run := b.orphaned(t)
			b.moved(t, run.ID, change)
			l := b.claim(t)
			res := b.execute(t, l, b.request(waiting))
			if res.RunID != run.ID || res.Outcome != outcome.Interrupted || res.Outcome.Class() != outcome.Given || res.LogTail != "first\n" {
				t.Fatalf("%+v", res)
			}
			if v := process.Probe(b.identity(t, run)); v != process.Dead { // it can be seen here, and carries the mark
				t.Fatalf("agent is %s", v)
			}
			if err := b.consume(t, l, run.ID); err != nil {
				t.Fatal(err)
			}
			if res := b.execute(t, l, b.request("true")); res.RunID == run.ID || res.Outcome != outcome.OK {
				t.Fatalf("%+v", res)
			}
		})
	}
	t.Run("pids lost", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		run := b.orphaned(t)
		b.put(t, run.ID, "pid.json", "")
		b.exec(t, `update runs set boot_id = 'other' where id = $1`, run.ID)
		if res := b.execute(t, b.claim(t), b.request(waiting)); res.RunID != run.ID || res.Outcome != outcome.Interrupted {
			t.Fatalf("%+v", res)
		}
	})
}

func TestRunThatCantBeJudged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	lock := filepath.Join(b.dir, run.ID.String(), "lock")
	if err := errors.Join(os.Rename(lock, lock+".away"), os.Symlink("lock", lock)); err != nil {
		t.Fatal(err)
	}
	l := b.claim(t)
	_, err := b.runs.Execute(bound(t), l, b.request(waiting).request())
	if _, ok := errors.AsType[*queue.SnoozeError](err); !ok {
		t.Error(err)
	}
	if err := b.runs.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Rename(lock+".away", lock); err != nil {
		t.Fatal(err)
	}
	b.letGo(t)
	if res := b.execute(t, l, b.request(waiting)); res.RunID != run.ID || text(res.Exit.Code) != "5" {
		t.Fatalf("%+v", res)
	}
}

func TestGarbageOfADeadShim(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exit.json", "pid.json", "spec.json"} {
		for how, see := range map[string]func(*testing.T, *bench){
			"executed":  nil,
			"recovered": wantRecovered,
			"ended":     wantEnded,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				run := b.orphaned(t)
				b.put(t, run.ID, name, "{\"torn")
				if see != nil {
					see(t, b)
				}
				l := b.claim(t)
				res := b.execute(t, l, b.request(waiting))
				if res.RunID != run.ID || res.Outcome != outcome.Crashed || res.Exit.Why != process.WhyShimDead {
					t.Fatalf("%+v", res)
				}
				if v := process.Probe(b.identity(t, run)); v != process.Dead {
					t.Fatalf("agent is %s", v)
				}
				if err := b.consume(t, l, run.ID); err != nil {
					t.Fatal(err)
				}
				if res := b.execute(t, l, b.request("true")); res.RunID == run.ID || res.Outcome != outcome.OK {
					t.Fatalf("%+v", res)
				}
			})
		}
	}
}

func wantRecovered(t *testing.T, b *bench) {
	t.Helper()
	if err := b.runs.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantAllFinished(t)
}

func wantEnded(t *testing.T, b *bench) {
	t.Helper()
	if err := b.runs.EndTask(bound(t), b.task); err != nil {
		t.Fatal(err)
	}
	b.wantAllFinished(t)
}

func (b *bench) wantAllFinished(t *testing.T) {
	t.Helper()
	for _, run := range b.list(t) {
		if run.State != StateFinished {
			t.Fatalf("%+v", run)
		}
	}
}

func TestGarbageIsNoEndOfALivingRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exit.json", "pid.json", "spec.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			run := b.left(t)
			b.put(t, run.ID, name, "{\"torn")
			if err := b.runs.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now, err := b.runs.Get(t.Context(), run.ID); err != nil || now.State != StateRunning {
				t.Fatalf("%+v, %v", now, err)
			}
			l := b.claim(t)
			answers := b.executing(t, l, b.request(waiting))
			b.letGo(t)
			if got := <-answers; got.err != nil || got.RunID != run.ID || text(got.Exit.Code) != "5" || got.LogTail != "first\nlast\n" {
				t.Fatalf("%+v", got)
			}
			b.wantStarted(t, 1)
		})
		t.Run(name+" cancelled", func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			run := b.left(t)
			b.put(t, run.ID, name, "{\"torn")
			wantEnded(t, b)
			if now := b.list(t)[0]; *now.Outcome != outcome.Cancelled || process.Probe(b.identity(t, run)) != process.Dead {
				t.Fatalf("%+v", now)
			}
		})
	}
}

func TestNotedEndNeedsNoDirectory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(`echo '{"orch":{"status":"needs_input","summary":"half","question":"which?"}}'`)
	first := b.execute(t, l, req)
	log := filepath.Join(b.dir, first.RunID.String(), "log")
	for name, garble := range map[string]func(){
		"exit.json": func() { b.put(t, first.RunID, "exit.json", "{\"torn") },
		"pid.json":  func() { b.put(t, first.RunID, "pid.json", "{\"torn") },
		"spec.json": func() { b.put(t, first.RunID, "spec.json", "{\"torn") },
		"log": func() {
			if err := errors.Join(os.Remove(log), os.Mkdir(log, 0o700), os.Mkdir(filepath.Join(log, "x"), 0o700)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		garble()
		res, err := b.runs.Execute(bound(t), l, req.request())
		if err != nil || res.RunID != first.RunID || res.Outcome != outcome.NeedsInput || res.Question != "which?" || res.Summary != "half" ||
			text(res.Exit.Code) != "0" || res.Exit.Why != process.WhyExited {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

func TestRecoverGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bad, good := b.planted(t, "bad", "exit 3"), b.planted(t, "good", "exit 3")
	dir := filepath.Join(b.dir, bad.String())
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := b.runs.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), bad.String()) || strings.Contains(err.Error(), good.String()) {
		t.Fatal(err)
	}
	if run, err := b.runs.Get(t.Context(), good); err != nil || run.State != StateFinished || *run.Outcome != outcome.AgentFailed {
		t.Fatalf("%+v, %v", run, err)
	}
}
