package agent

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestStopLeavesTheAgentRunning(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	run := b.running(t)
	l.BeginStop()
	if got := <-answers; !errors.Is(got.err, queue.ErrStopping) {
		t.Fatalf("%+v", got)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("agent is %s", v)
	}
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	b.wantContinued(t, run)
}

// wantContinued claims the job again and sees the same run to its end.
func (b *bench) wantContinued(t *testing.T, before Run) {
	t.Helper()
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	eventually(t, "the job's pid", func() bool {
		job, err := b.queue.Get(t.Context(), l.Job().ID)
		return err == nil && job.PID != nil && *job.PID == *before.PID
	})
	b.letGo(t)
	got := <-answers
	if got.err != nil || got.RunID != before.ID || !got.Resumed || text(got.Exit.Code) != "5" || got.LogTail != "first\nlast\n" {
		t.Fatalf("%+v", got)
	}
	runs := b.list(t)
	if len(runs) != 1 || *runs[0].PID != *before.PID || *runs[0].Outcome != outcome.AgentFailed {
		t.Fatalf("%+v", runs)
	}
	b.wantStarted(t, 1)
}

func TestKilledWorkerIsContinued(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.killedExecutor(t)
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("agent is %s", v)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	dead := func(w queue.Worker) bool {
		return process.Probe(process.Identity{
			Host: w.Host, BootID: w.BootID, PIDNamespace: w.PIDNamespace, PID: w.PID, StartedAt: w.PIDStartedAt,
		}) == process.Dead
	}
	if jobs, err := queuetest.TakeDead(t.Context(), b.pool, b.queue, self.BootID, self.PIDNamespace, dead); err != nil || len(jobs) != 1 {
		t.Fatalf("released %d, %v", len(jobs), err)
	}
	if err := b.runs.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantContinued(t, run)
}

func TestLostLeaseLeavesTheAgentRunning(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	run := b.running(t)
	l.MarkLost(nil)
	if got := <-answers; !errors.Is(got.err, queue.ErrLeaseLost) {
		t.Fatalf("%+v", got)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("agent is %s", v)
	}
}

func TestLostLeaseStartsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(waiting)
	req.Prepare = func(ctx context.Context) error { // meanwhile somebody else has got the job
		_, err := b.pool.Exec(ctx, `update jobs set epoch = epoch + 1`)
		return err
	}
	if _, err := b.runs.Execute(bound(t), l, req.request()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Fatal(err)
	}
	if n := len(b.list(t)); n != 0 {
		t.Fatalf("%d runs", n)
	}
	b.wantStarted(t, 0)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	const stubborn = `trap '' TERM; while :; do sleep 1000; done`
	t.Run("while it is followed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		l := b.claim(t)
		answers := b.executing(t, l, b.request(stubborn))
		run := b.running(t)
		l.RequestCancel()
		if got := <-answers; !errors.Is(got.err, queue.ErrCancelRequested) {
			t.Fatalf("%+v", got)
		}
		b.wantCancelled(t, run)
		// The operator's retry of the task has to run again.
		if err := l.Release(t.Context(), queue.Release{}); err != nil {
			t.Fatal(err)
		}
		if res := b.execute(t, b.claim(t), b.request("true")); res.RunID == run.ID || res.Outcome != outcome.OK {
			t.Fatalf("%+v", res)
		}
	})
	t.Run("asked for while nobody followed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		l := b.claim(t)
		answers := b.executing(t, l, b.request(stubborn))
		run := b.running(t)
		l.BeginStop()
		<-answers
		if err := l.Release(t.Context(), queue.Release{}); err != nil {
			t.Fatal(err)
		}
		l = b.claim(t)
		l.RequestCancel()
		if got := <-b.executing(t, l, b.request(stubborn)); !errors.Is(got.err, queue.ErrCancelRequested) {
			t.Fatalf("%+v", got)
		}
		b.wantCancelled(t, run)
	})
	t.Run("before anything was started", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		l := b.claim(t)
		l.RequestCancel()
		if got := <-b.executing(t, l, b.request(stubborn)); !errors.Is(got.err, queue.ErrCancelRequested) || len(b.list(t)) != 0 {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("of an intent", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		id := b.insertIntent(t, 0)
		l := b.claim(t)
		l.RequestCancel()
		if got := <-b.executing(t, l, b.request(stubborn)); !errors.Is(got.err, queue.ErrCancelRequested) {
			t.Fatalf("%+v", got)
		}
		if run, err := b.runs.Get(t.Context(), id); err != nil || *run.Outcome != outcome.NeverStarted {
			t.Fatalf("%+v, %v", run, err)
		}
	})
}

func (b *bench) wantCancelled(t *testing.T, before Run) {
	t.Helper()
	run, err := b.runs.Get(t.Context(), before.ID)
	if err != nil || run.State != StateFinished || *run.Ended != "cancelled" || *run.Outcome != outcome.Cancelled || *run.Signal != "SIGKILL" {
		t.Fatalf("%+v, %v", run, err)
	}
	if v := process.Probe(b.identity(t, before)); v != process.Dead {
		t.Fatalf("agent is %s", v)
	}
}

func TestKilledShim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.request(`(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &); `+waiting))
	run := b.running(t)
	if err := unix.Kill(*run.ShimPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := <-answers
	if got.err != nil || got.Outcome != outcome.Crashed || got.Exit.Why != process.WhyShimDead {
		t.Fatalf("%+v", got)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Dead {
		t.Fatalf("agent is %s", v)
	}
	if again := b.execute(t, l, b.request("true")); again.RunID != run.ID || again.Outcome != outcome.Crashed {
		t.Fatalf("%+v", again)
	}
}

func TestInterruptAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	first := b.request(waiting)
	second := first
	second.Key, second.Purpose, second.Agent = "gate:tests", PurposeGate, ""
	one, two := b.executing(t, l, first), b.executing(t, l, second)
	eventually(t, "both run", func() bool {
		runs := b.list(t)
		return len(runs) == 2 && runs[0].State == StateRunning && runs[1].State == StateRunning
	})
	counts, err := b.runs.AgentsRunning(t.Context())
	if err != nil || len(counts) != 1 || counts["coder"] != 1 {
		t.Fatalf("%v, %v", counts, err)
	}
	if err := b.runs.InterruptAll(bound(t)); err != nil {
		t.Fatal(err)
	}
	for _, run := range b.list(t) {
		if run.State != StateFinished || *run.Outcome != outcome.Interrupted || process.Probe(b.identity(t, run)) != process.Dead {
			t.Fatalf("%+v", run)
		}
	}
	for _, answers := range []<-chan answer{one, two} {
		if got := <-answers; got.err != nil || got.Outcome != outcome.Interrupted || got.Outcome.Class() != outcome.Given {
			t.Fatalf("%+v", got)
		}
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	run := b.running(t)
	if err := b.runs.Recover(t.Context()); err != nil { // leaves the living alone
		t.Fatal(err)
	}
	l.BeginStop()
	<-answers
	b.letGo(t)
	eventually(t, "its end", func() bool {
		if err := b.runs.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := b.runs.Get(t.Context(), run.ID)
		return err == nil && now.State == StateFinished
	})
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	res := b.execute(t, b.claim(t), b.request(waiting))
	if res.RunID != run.ID || !res.Resumed || text(res.Exit.Code) != "5" || res.LogTail != "first\nlast\n" {
		t.Fatalf("%+v", res)
	}
	log, err := b.runs.OpenLog(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := log.Size(); err != nil || size != res.Exit.LogBytes || size != int64(len("first\nlast\n")) {
		t.Fatalf("%d, %v", size, err)
	}
}
