package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/environ"
	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/queue"
)

func TestNothingStartsWithoutRoom(t *testing.T) {
	t.Parallel()
	full := &queue.SnoozeError{After: time.Minute, WaitingFor: "disk_space"}
	asked, fullAt := 0, 1
	b := newBench(t, func(c *Config) {
		c.Room = func(context.Context) error {
			if asked++; asked == fullAt {
				return full
			}
			return nil
		}
	})
	l := b.claim(t)
	prepared := 0
	req := b.request("true")
	req.Prepare = func(context.Context) error { prepared++; return nil }
	for fullAt = 1; fullAt <= 2; fullAt++ { // before anything, and once that has taken room
		asked = 0
		if _, err := b.runs.Execute(bound(t), l, req.request()); !errors.Is(err, full) {
			t.Fatal(err)
		}
		b.wantNothingOpen(t)
	}
	if prepared != 1 {
		t.Errorf("prepared %d times", prepared)
	}
	fullAt = 0
	if res := b.execute(t, l, req); res.Outcome != outcome.OK {
		t.Fatalf("%+v", res)
	}
}

func TestLivingRunIsFollowedThoughItsAgentIsGoneFromTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	l := b.claim(t)
	req := b.request(waiting)
	req.Prepare = func(context.Context) error { return errors.New("no such agent") }
	answers := b.executing(t, l, req)
	b.letGo(t)
	if got := <-answers; got.err != nil || got.RunID != run.ID || text(got.Exit.Code) != "5" {
		t.Fatalf("%+v", got)
	}
}

func TestResultOfAttempt1IsNotSeenByAttempt2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	first := b.ended(t, l, b.request("echo one; exit 3"))
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `update jobs set attempt = attempt + 1`)
	l = b.claim(t)
	second := b.execute(t, l, b.request("echo two"))
	if second.RunID == first.RunID || second.Outcome != outcome.OK || second.LogTail != "two\n" {
		t.Fatalf("%+v", second)
	}
	if runs := b.list(t); len(runs) != 2 || runs[1].Attempt == runs[0].Attempt {
		t.Fatalf("%+v", runs)
	}
}

func TestLostDirectoryAfterARebootIsInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	b.lose(t, run, os.RemoveAll) // its shim ends with the test, before it can leave a record there
	b.exec(t, `update runs set boot_id = 'before the power cut'`)
	if res := b.execute(t, b.claim(t), b.request(waiting)); res.RunID != run.ID || res.Outcome != outcome.Interrupted {
		t.Fatalf("%+v", res)
	}
}

func TestStoppedShimIsKilledAndItsRunCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.KillPatience = 50 * time.Millisecond })
	run := b.left(t)
	runtest.Freeze(t, *run.ShimPID)
	l := b.claim(t)
	l.RequestCancel()
	if got := <-b.executing(t, l, b.request(waiting)); !errors.Is(got.err, queue.ErrCancelRequested) {
		t.Fatalf("%+v", got)
	}
	now, err := b.runs.Get(t.Context(), run.ID)
	if err != nil || now.State != StateFinished || *now.Outcome != outcome.Cancelled {
		t.Fatalf("%+v, %v", now, err)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Dead {
		t.Fatalf("agent is %s", v)
	}
}

func TestReasonOfAKilledShimsEndIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	// Whoever left that died before it was noted.
	if err := os.Symlink(string(process.WhyCancelled), filepath.Join(b.runs.dir(run.ID), "stop")); err != nil {
		t.Fatal(err)
	}
	b.killShim(t, run.ID)
	if err := b.runs.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := b.runs.Get(t.Context(), run.ID); err != nil || now.State != StateFinished || *now.Outcome != outcome.Cancelled {
		t.Fatalf("%+v, %v", now, err)
	}
}

func TestRunOfALivingContainerIsLeftAlone(t *testing.T) {
	t.Parallel()
	gone := false
	b := newBench(t, func(c *Config) {
		c.NamespaceGone = func(_ context.Context, of process.Identity) (bool, error) {
			if of.PIDNamespace != "pid:[1]" {
				t.Errorf("asked for %+v", of)
			}
			return gone, nil
		}
	})
	run := b.orphaned(t)
	b.moved(t, run.ID, otherNamespace)
	l := b.claim(t)
	_, err := b.runs.Execute(bound(t), l, b.request(waiting).request())
	if wait, ok := errors.AsType[*queue.SnoozeError](err); !ok || wait.WaitingFor != "run_elsewhere" {
		t.Fatal(err)
	}
	if err := b.runs.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("agent is %s", v)
	}
	gone = true
	if res := b.execute(t, l, b.request(waiting)); res.RunID != run.ID || res.Outcome != outcome.Interrupted {
		t.Fatalf("%+v", res)
	}
}

func TestRunOfALivingContainerIsLeftAloneThoughItsDirectoryTellsNothing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*bench, Run){
		"pids garbled":   func(b *bench, run Run) { b.put(t, run.ID, "pid.json", "{\"torn") },
		"directory lost": func(b *bench, run Run) { _ = os.RemoveAll(filepath.Join(b.dir, run.ID.String())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *Config) {
				c.NamespaceGone = func(context.Context, process.Identity) (bool, error) { return false, nil }
			})
			run := b.orphaned(t)
			spoil(b, run)
			b.exec(t, `update runs set pid_namespace = 'pid:[1]'`)
			_, err := b.runs.Execute(bound(t), b.claim(t), b.request(waiting).request())
			if wait, ok := errors.AsType[*queue.SnoozeError](err); !ok || wait.WaitingFor != "run_elsewhere" {
				t.Fatal(err)
			}
			if v := process.Probe(b.identity(t, run)); v != process.Alive {
				t.Fatalf("agent is %s", v)
			}
			if err := process.EndLost(bound(t), run.ID.String(), "", 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhyNothingStartedIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Shim = []string{"sh", "-c", "echo no such luck >&2; exit 1"} })
	res := b.execute(t, b.claim(t), b.request("true"))
	if res.Outcome != outcome.NeverStarted || !strings.Contains(res.Exit.Error, "no such luck") {
		t.Fatalf("%+v", res)
	}
	if runs := b.list(t); !strings.Contains(runs[len(runs)-1].Error, "no such luck") {
		t.Fatalf("%+v", runs)
	}
}

func TestSecretsNeverReachTheLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.Secrets = []process.Secret{{Name: "ORCH_DATABASE_URL", Value: "postgres://me:sesame@db"}}
	})
	req := b.request(`echo "key $KEY, found postgres://me:sesame@db, mode $MODE"`)
	req.Env, req.Plain = []string{"KEY=abcdef123456", "MODE=production"}, append(req.Plain, "MODE")
	res := b.execute(t, b.claim(t), req)
	if res.LogTail != "key [KEY], found [ORCH_DATABASE_URL], mode production\n" {
		t.Errorf("%q", res.LogTail)
	}
	spec, err := os.ReadFile(filepath.Join(b.dir, res.RunID.String(), "spec.json"))
	if err != nil || strings.Contains(string(spec), "abcdef") {
		t.Errorf("%s, %v", spec, err)
	}
}

func TestPromptFileIsNamedWhereItIsWanted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request("")
	req.Argv = []string{"sh", "-c", `cat "$1" "$WHERE"`, "sh", PromptFile}
	req.Env, req.Plain = []string{"WHERE=" + PromptFile}, []string{"WHERE", "GORACE"}
	req.Stdin = []byte("do it\n")
	if res := b.execute(t, b.claim(t), req); res.LogTail != "do it\ndo it\n" {
		t.Errorf("%+v", res)
	}
}

func TestAgentFindsItsFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.HomesDir = filepath.Join(c.Dir, "homes") })
	source := filepath.Join(b.work, "token")
	if err := os.WriteFile(source, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := b.claim(t)
	req := b.request(`cat "$HOME/.config/token"`)
	req.Seeds = []environ.Seed{{From: source, To: ".config/token"}}
	if res := b.ended(t, l, req); res.LogTail != "token\n" {
		t.Fatalf("%+v", res)
	}
	req.Seeds[0].From += ".gone"
	_, err := b.runs.Execute(bound(t), l, req.request())
	if failure, ok := errors.AsType[*queue.Failure](err); !ok || !failure.Terminal || !strings.Contains(err.Error(), ".gone") {
		t.Fatal(err)
	}
	b.wantNothingOpen(t)
}

func TestGateHasAHomeOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.HomesDir = filepath.Join(c.Dir, "homes") })
	l := b.claim(t)
	req := b.request(`ls -A "$HOME"; echo spoilt > "$HOME/.npmrc"; echo kept > "$XDG_CACHE_HOME/$0"; ls "$XDG_CACHE_HOME"`)
	req.Purpose, req.Agent, req.Cache = PurposeGate, "", "demo"
	req.Argv = append(req.Argv, "one")
	if res := b.ended(t, l, req); res.LogTail != "one\n" {
		t.Fatalf("%q", res.LogTail)
	}
	req.Argv[len(req.Argv)-1] = "two"
	if res := b.ended(t, l, req); res.LogTail != "one\ntwo\n" {
		t.Fatalf("%q", res.LogTail)
	}
}

// crowd is many living runs that nobody follows.
func (b *bench) crowd(t *testing.T) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for i := range 8 {
		id := b.planted(t, strconv.Itoa(i), waiting)
		b.exec(t, `update runs set state = 'running', started_at = now() where id = $1`, id)
		ids = append(ids, id)
	}
	return ids
}

// recoveredTimes recovers a few times and makes sure that every run lives on and stays open.
func (b *bench) recoveredTimes(t *testing.T, n int, agents []process.Identity) {
	t.Helper()
	for range n {
		if err := b.runs.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, run := range b.list(t) {
		if v := process.Probe(agents[i]); run.State == StateFinished || v != process.Alive {
			t.Fatalf("%s is %s, its agent %s", run.Key, run.State, v)
		}
	}
}

func (b *bench) agents(t *testing.T, ids []uuid.UUID) []process.Identity {
	t.Helper()
	var agents []process.Identity
	for _, id := range ids {
		shim, err := process.OpenRun(filepath.Join(b.dir, id.String()))
		if err != nil {
			t.Fatal(err)
		}
		st, err := shim.State()
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, st.PIDs.Agent)
	}
	return agents
}

func TestMassDeathKillsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.crowd(t)
	agents := b.agents(t, ids)
	for _, id := range ids {
		lock := filepath.Join(b.dir, id.String(), "lock")
		if err := os.Rename(lock, lock+".away"); err != nil {
			t.Fatal(err)
		}
		b.put(t, id, "lock", "")
	}
	b.recoveredTimes(t, 2, agents)
	if dead, all, open := b.runs.MassDeath(); dead != 8 || all != 8 || !open {
		t.Errorf("%d of %d, %v", dead, all, open)
	}
	// A job that comes back to one of them waits as well.
	b.exec(t, `update runs set key = 'stage:development:1' where id = $1`, ids[0])
	l := b.claim(t)
	_, err := b.runs.Execute(bound(t), l, b.request(waiting).request())
	if wait, ok := errors.AsType[*queue.SnoozeError](err); !ok || wait.WaitingFor != "mass_death" {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		lock := filepath.Join(b.dir, id.String(), "lock")
		if err := os.Rename(lock+".away", lock); err != nil {
			t.Fatal(err)
		}
	}
	b.recoveredTimes(t, 1, agents)
	if _, _, open := b.runs.MassDeath(); open {
		t.Error("it goes on")
	}
}

func TestMissingDirectoriesOfManyRunsEndNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	agents := b.agents(t, b.crowd(t))
	away := b.dir + ".away"
	if err := errors.Join(os.Rename(b.dir, away), os.Mkdir(b.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	b.recoveredTimes(t, 3, agents)
	if err := errors.Join(os.Remove(b.dir), os.Rename(away, b.dir)); err != nil {
		t.Fatal(err)
	}
	b.recoveredTimes(t, 1, agents)
}

func TestMassDeathIsClearedAwaySlowly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range b.crowd(t) {
		b.killShim(t, id)
	}
	ended := func() (n int) {
		if err := b.runs.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, run := range b.list(t) {
			if run.State == StateFinished {
				n++
			}
		}
		return n
	}
	for pass, want := range []int{0, 0, 0, 1, 2, 3, 4, 8} { // four are too few for a mass
		if got := ended(); got != want {
			t.Fatalf("pass %d: %d have ended, want %d", pass, got, want)
		}
	}
}
