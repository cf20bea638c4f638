package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
)

func TestExecute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(`echo working; cat; echo '{"orch":{"status":"ok","cost_usd":0.25,"summary":"did it"}}'`)
	req.Dir = filepath.Join(b.work, "made")
	req.Stdin = []byte("the prompt\n")
	prepared := 0
	req.Prepare = func(context.Context) error {
		prepared++
		return os.Mkdir(req.Dir, 0o700)
	}
	res := b.execute(t, l, req)
	if res.Outcome != outcome.OK || res.Resumed || res.Summary != "did it" || res.Usage.CostUSD == nil || *res.Usage.CostUSD != 0.25 ||
		!strings.HasPrefix(res.LogTail, "working\nthe prompt\n") {
		t.Fatalf("%+v", res)
	}
	job := l.Job()
	if job.RunID == nil || *job.RunID != res.RunID || job.PinnedRoot == nil || *job.PinnedRoot != b.root {
		t.Errorf("job isn't pinned: %v, %v", job.RunID, job.PinnedRoot)
	}
	again := b.execute(t, l, req)
	if again.RunID != res.RunID || !again.Resumed || again.Outcome != outcome.OK || again.Summary != "did it" ||
		again.LogTail != res.LogTail || text(again.Exit.Code) != "0" || again.Exit.Why != process.WhyExited || prepared != 1 {
		t.Fatalf("%+v, prepared %d times", again, prepared)
	}
	run, err := b.runs.Get(t.Context(), res.RunID)
	if err != nil || run.State != StateFinished || *run.Outcome != outcome.OK || *run.CostUSD != 0.25 || run.LogBytes == 0 ||
		run.PID == nil || run.StartedAt == nil || run.Agent != "coder" || run.Attempt != 1 || run.JobEpoch != 1 {
		t.Fatalf("%+v, %v", run, err)
	}
	if err := b.consume(t, l, res.RunID); err != nil {
		t.Fatal(err)
	}
	if err := b.consume(t, l, res.RunID); !errors.Is(err, ErrConsumed) {
		t.Fatalf("consumed twice: %v", err)
	}
	req.Prepare = nil
	if third := b.execute(t, l, req); third.RunID == res.RunID || third.Resumed {
		t.Fatalf("%+v", third)
	}
}

func TestExecuteOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		change       func(*Program)
		want         outcome.Outcome
		why          process.Why
	}{
		{name: "code", script: "exit 3", want: outcome.AgentFailed, why: process.WhyExited},
		{name: "signal", script: "kill -KILL $$", want: outcome.Killed, why: process.WhyExited},
		{name: "crash", script: "kill -SEGV $$", want: outcome.Crashed, why: process.WhyExited},
		{name: "no such command", change: func(r *Program) { r.Argv = []string{"no-such-command"} }, want: outcome.NotFound, why: process.WhyExited},
		{name: "timeout", script: "exec sleep 1000", change: func(r *Program) { r.Timeout = 50 * time.Millisecond }, want: outcome.Timeout, why: process.WhyTimeout},
		{name: "stall", script: "echo x; exec sleep 1000", change: func(r *Program) { r.StallTimeout = 50 * time.Millisecond }, want: outcome.Stalled, why: process.WhyStalled},
		{name: "question", script: `echo '{"orch":{"status":"needs_input","question":"which?"}}'`, want: outcome.NeedsInput, why: process.WhyExited},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := b.request(tt.script)
			if tt.change != nil {
				tt.change(&req.Program)
			}
			res := b.execute(t, b.claim(t), req)
			if res.Outcome != tt.want || res.Exit.Why != tt.why {
				t.Fatalf("%+v", res)
			}
			if tt.want == outcome.NeedsInput && res.Question != "which?" {
				t.Fatalf("question %q", res.Question)
			}
		})
	}
}

func TestProgramGetsNoSecrets(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.HomesDir = filepath.Join(c.Dir, "homes") })
	req := b.request("env; [ -d $HOME ] && [ -w $TMPDIR ] && echo usable")
	req.Env = []string{"GREETING=hello", "TERM=mine"}
	res := b.execute(t, b.claim(t), req)
	for _, want := range []string{"GREETING=hello\n", "TERM=mine\n", "PATH=", "ORCH_RUN=" + res.RunID.String() + "\n", "/homes/coder\n", "usable\n"} {
		if !strings.Contains(res.LogTail, want) {
			t.Errorf("no %q in %s", want, res.LogTail)
		}
	}
	if strings.Contains(res.LogTail, "ORCH_API_TOKEN") || strings.Contains(res.LogTail, "HOME="+os.Getenv("HOME")+"\n") {
		t.Errorf("leaked: %s", res.LogTail)
	}
	spec, err := os.ReadFile(filepath.Join(b.dir, res.RunID.String(), "spec.json"))
	if err != nil || strings.Contains(string(spec), "hello") || !strings.Contains(string(spec), "GREETING") {
		t.Errorf("spec %s, %v", spec, err)
	}
}

func TestPromptIsOnStdinAndInAFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request(`cat; cat "$ORCH_PROMPT_FILE"`)
	req.Stdin = []byte("do it\n")
	if res := b.execute(t, b.claim(t), req); res.LogTail != "do it\ndo it\n" {
		t.Errorf("the program read %q", res.LogTail)
	}
	b = newBench(t)
	if res := b.execute(t, b.claim(t), b.request(`echo "${ORCH_PROMPT_FILE-none}"`)); res.LogTail != "none\n" {
		t.Errorf("without a prompt: %q", res.LogTail)
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	for name, change := range map[string]func(*asked){
		"no key":             func(r *asked) { r.Key = "" },
		"no command":         func(r *asked) { r.Argv = nil },
		"relative directory": func(r *asked) { r.Dir = "x" },
		"unknown purpose":    func(r *asked) { r.Purpose = "fun" },
		"bad environment":    func(r *asked) { r.Env = []string{"x"} },
	} {
		req := b.request("true")
		change(&req)
		if _, err := b.runs.Execute(bound(t), l, req.request()); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.wantNothingOpen(t)
}

// wantNothingOpen makes sure that a failed start leaves nothing that the next one would stumble over.
func (b *bench) wantNothingOpen(t *testing.T) {
	t.Helper()
	for _, run := range b.list(t) {
		if run.ConsumedAt == nil {
			t.Errorf("left: %+v", run)
		}
	}
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	t.Run("prepare", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		req := b.request("true")
		req.Prepare = func(context.Context) error { return queue.Terminal("no_workspace", errors.New("broken")) }
		_, err := b.runs.Execute(bound(t), b.claim(t), req.request())
		var failure *queue.Failure
		if !errors.As(err, &failure) || failure.Code != "no_workspace" || len(b.list(t)) != 0 {
			t.Fatalf("%v, %v", err, b.list(t))
		}
	})
	t.Run("shim isn't there", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, func(c *Config) { c.Shim = []string{"/no/such/shim"} })
		l := b.claim(t)
		if _, err := b.runs.Execute(bound(t), l, b.request("true").request()); err == nil {
			t.Fatal("no error")
		}
		b.wantNothingOpen(t)
		if l.Job().RunID != nil {
			t.Error("the job is still tied to it")
		}
	})
	t.Run("shim comes to nothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, func(c *Config) { c.Shim = []string{"false"} })
		res := b.execute(t, b.claim(t), b.request("true"))
		if res.Outcome != outcome.NeverStarted || res.Outcome.Class() != outcome.Given || len(b.list(t)) != maxStarts {
			t.Fatalf("%+v, %d runs", res, len(b.list(t)))
		}
	})
}

func TestTwoExecutesStartOneRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(waiting)
	both := make(chan struct{})
	arrived := make(chan struct{}, 2)
	req.Prepare = func(context.Context) error { // both have found nothing when either goes on
		arrived <- struct{}{}
		<-both
		return nil
	}
	first, second := b.executing(t, l, req), b.executing(t, l, req)
	<-arrived
	<-arrived
	close(both)
	b.running(t)
	b.letGo(t)
	one, two := <-first, <-second
	if one.err != nil || two.err != nil || one.RunID != two.RunID || one.Resumed == two.Resumed || text(two.Exit.Code) != "5" {
		t.Fatalf("%+v, %+v", one, two)
	}
	b.wantStarted(t, 1)
	if n := len(b.list(t)); n != 1 {
		t.Fatalf("%d runs", n)
	}
}

func TestRunOfAnotherRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	other := uuid.New()
	b.exec(t, `insert into roots (id, host, path) values ($1, 'there', '/x')`, other)
	run := b.insertIntent(t, 1)
	b.exec(t, `update runs set root_id = $1 where id = $2`, other, run)
	_, err := b.runs.Execute(bound(t), l, b.request("true").request())
	if _, ok := errors.AsType[*queue.SnoozeError](err); !ok {
		t.Fatal(err)
	}
	if _, err := b.runs.OpenLog(t.Context(), run); !errors.Is(err, ErrElsewhere) {
		t.Fatal(err)
	}
}

// insertIntent leaves what a process that died right after the intent leaves.
func (b *bench) insertIntent(t *testing.T, epoch int) uuid.UUID {
	t.Helper()
	id := uuid.New()
	b.exec(t, `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, root_id, host, boot_id, pid_namespace)
		values ($1, $2, 1, $3, 'agent', 'stage:development:1', 'development', 1, 1, $4, 'h', 'b', 'n')`, id, b.task, epoch, b.root)
	return id
}

func TestIntentWithoutShim(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		create bool // the directory was made, too
	}{{"no directory", false}, {"directory", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			old := b.insertIntent(t, 0)
			dir := filepath.Join(b.dir, old.String())
			spec := process.Spec{RunID: old.String(), Argv: []string{"sh", "-c", "echo x >> started"}, Dir: b.work}
			if tt.create {
				if err := process.Create(dir, spec, nil); err != nil {
					t.Fatal(err)
				}
			}
			res := b.execute(t, b.claim(t), b.request("echo x >> started"))
			if res.RunID == old || res.Outcome != outcome.OK || res.Resumed {
				t.Fatalf("%+v", res)
			}
			if run, err := b.runs.Get(t.Context(), old); err != nil || *run.Ended != "never_started" || run.ConsumedAt == nil {
				t.Fatalf("%+v, %v", run, err)
			}
			// Whoever held the job before wakes up and goes on where it was.
			if err := process.Create(dir, spec, nil); !errors.Is(err, process.ErrExists) {
				t.Fatalf("late create: %v", err)
			}
			if tt.create {
				late, err := process.Launch(t.Context(), b.runs.cfg.Shim, dir, process.Bundle{Env: shimEnv()})
				if err != nil {
					t.Fatal(err)
				}
				<-late.ShimGone()
				if exit, err := late.Wait(bound(t)); err != nil || exit.Why != process.WhyNeverStarted {
					t.Fatalf("%+v, %v", exit, err)
				}
			}
			b.wantStarted(t, 1)
		})
	}
}

func TestIntentOfTheSameGrantIsAwaited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	id := b.insertIntent(t, l.Job().Epoch)
	answers := b.executing(t, l, b.request("false"))
	spec := process.Spec{RunID: id.String(), Argv: []string{"sh", "-c", waiting}, Dir: b.work}
	if err := process.Create(filepath.Join(b.dir, id.String()), spec, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Launch(t.Context(), b.runs.cfg.Shim, filepath.Join(b.dir, id.String()), process.Bundle{Env: shimEnv()}); err != nil {
		t.Fatal(err)
	}
	b.running(t)
	b.letGo(t)
	if got := <-answers; got.err != nil || got.RunID != id || text(got.Exit.Code) != "5" || !got.Resumed {
		t.Fatalf("%+v", got)
	}
}
