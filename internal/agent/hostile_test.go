package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/process/runtest"
)

// A program can stop its shim, and so can anybody else of the same user. Its deadlines hold all the same.
func TestShimThatItsProgramHasStoppedIsWoken(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.ListenEvery = 20 * time.Millisecond })
	req := b.request(`sleep 0.3; kill -STOP $PPID; sleep 1000`)
	req.Timeout = time.Second
	if res := b.execute(t, b.claim(t), req); res.Outcome != outcome.Timeout {
		t.Errorf("%+v", res)
	}
}

func TestStoppedShimOfARunThatWasGivenUpIsWoken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.killedExecutor(t)
	b.giveUp(t, b.root)
	runtest.Freeze(t, *run.ShimPID)
	eventually(t, "the program is gone", func() bool {
		if err := b.runs.EndStrays(bound(t)); err != nil { // comes again and again
			t.Fatal(err)
		}
		return process.Probe(b.identity(t, run)) == process.Dead
	})
}

// Whatever a program does to be found no more, the shim is its parent, and is found itself.
func TestProgramThatDeletesItsRunDirectoryAndItsMarkIsEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	ctx, cancel := context.WithCancelCause(bound(t))
	ended := make(chan error, 1)
	go func() {
		_, err := b.runs.Execute(ctx, l, b.request(`until [ -e go ]; do sleep 0.01; done; cd /; rm -rf "$(dirname "$TMPDIR")"
			exec env -i sh -c 'setsid sleep 1000 & exec sleep 1000'`).request())
		ended <- err
	}()
	run := b.running(t)
	shim, err := process.IdentityOf(*run.ShimPID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(shim.PID, unix.SIGTERM) })
	b.letGo(t)
	eventually(t, "the directory is gone", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, run.ID.String()))
		return errors.Is(err, os.ErrNotExist)
	})
	cancel(errors.New("enough"))
	if err := <-ended; err == nil {
		t.Error("a run without its directory came to a good end")
	}
	if err := b.runs.End(bound(t), run.ID, process.WhyCeiling); err != nil {
		t.Fatal(err)
	}
	if got := b.list(t)[0]; got.State != StateFinished || *got.Outcome != outcome.Timeout {
		t.Fatalf("run is %s, %v", got.State, got.Outcome)
	}
	for _, id := range []process.Identity{b.identity(t, run), shim} {
		if v := process.Probe(id); v != process.Dead {
			t.Errorf("%d is %s", id.PID, v)
		}
	}
}

func TestRunWithoutItsLockIsJudgedByItsShim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	lock := filepath.Join(b.dir, run.ID.String(), "lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := b.runs.Recover(bound(t)); err != nil {
		t.Fatal(err)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("program is %s", v)
	}
	if err := unix.Kill(*run.ShimPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is over", func() bool {
		if err := b.runs.Recover(bound(t)); err != nil {
			t.Fatal(err)
		}
		return b.list(t)[0].State == StateFinished
	})
	if v := process.Probe(b.identity(t, run)); v != process.Dead {
		t.Fatalf("program is %s", v)
	}
	dir, err := process.OpenRun(filepath.Dir(lock))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Remove(bound(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRunWithoutItsLockIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	if err := os.Remove(filepath.Join(b.dir, run.ID.String(), "lock")); err != nil {
		t.Fatal(err)
	}
	if err := b.runs.EndTask(bound(t), b.task); err != nil {
		t.Fatal(err)
	}
	if got := b.list(t)[0]; got.State != StateFinished || *got.Outcome != outcome.Cancelled {
		t.Fatalf("run is %s, %v", got.State, got.Outcome)
	}
}
