package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/queue"
)

// losses are the ways in which a directory is lost under a living run.
func losses(t *testing.T) map[string]func(dir string) error {
	t.Helper()
	return map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"emptied": func(dir string) error {
			entries, err := os.ReadDir(dir)
			for _, entry := range entries {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
			}
			return err
		},
		"moved away": func(dir string) error { return os.Rename(dir, filepath.Join(t.TempDir(), "away")) },
	}
}

// lose takes a run's directory away, and nothing else. Its processes end with the test.
func (b *bench) lose(t *testing.T, run Run, how func(dir string) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("clean-up took too long"))
		defer cancel()
		if err := process.EndLost(ctx, run.ID.String(), b.runs.dir(run.ID), *run.ShimPID); err != nil {
			t.Error(err)
		}
	})
	if err := how(b.runs.dir(run.ID)); err != nil {
		t.Fatal(err)
	}
}

// forgotten makes the run one whose start was never noted.
func (b *bench) forgotten(t *testing.T, run Run) {
	t.Helper()
	b.exec(t, `update runs set state = 'intended', shim_pid = null, pid = null, pid_started_at = null, started_at = null where id = $1`, run.ID)
}

func (b *bench) wantAlive(t *testing.T, run Run, want process.Verdict) {
	t.Helper()
	if v := process.Probe(b.identity(t, run)); v != want {
		t.Fatalf("the program is %s, want %s", v, want)
	}
}

// However often it is looked at: a directory that is gone is no end of a run. It is followed by its shim, and its result used.
func TestLivingRunOutlivesItsDirectory(t *testing.T) {
	t.Parallel()
	for name, how := range losses(t) {
		for _, noted := range []bool{true, false} {
			if !noted {
				name += ", its start not noted"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				log := &bytes.Buffer{}
				b := newBench(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
				run := b.left(t)
				b.lose(t, run, how)
				if !noted {
					b.forgotten(t, run)
				}
				for range 5 {
					if s := b.seem(t, run.ID)[run.ID]; s.Process != process.Alive || s.Foreign || s.RunningFor > patience {
						t.Fatalf("%+v", s)
					}
					if err := errors.Join(b.runs.Recover(bound(t)), b.runs.EndStrays(bound(t))); err != nil {
						t.Fatal(err)
					}
					if err := b.runs.NoteDead(bound(t), run.ID); !errors.Is(err, ErrNotDead) {
						t.Fatal(err)
					}
				}
				if n := strings.Count(log.String(), "run directory is lost, the run goes on"); n != 1 {
					t.Errorf("told %d times: %s", n, log)
				}
				answers := b.executing(t, b.claim(t), b.request(waiting))
				b.wantAlive(t, run, process.Alive)
				b.letGo(t)
				if got := <-answers; got.err != nil || got.RunID != run.ID || text(got.Exit.Code) != "5" || got.Outcome != outcome.AgentFailed {
					t.Fatalf("%+v", got)
				}
				b.wantStarted(t, 1)
			})
		}
	}
}

// What a program has said of itself is known by its shim, and isn't lost with the directory.
func TestSuccessOutlivesItsDirectory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(`echo '{"orch":{"status":"ok","summary":"all done","cost_usd":0.5}}'; until [ -e go ]; do sleep 0.01; done`)
	answers := b.executing(t, l, req)
	run := b.running(t)
	b.lose(t, run, os.RemoveAll)
	b.letGo(t)
	got := <-answers
	if got.err != nil || got.Outcome != outcome.OK || got.Summary != "all done" || got.Usage.CostUSD == nil || !strings.Contains(got.Exit.Error, "lost") {
		t.Fatalf("%+v", got)
	}
}

func TestFollowerOfARunAdriftLeavesAtTheStop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	b.lose(t, run, os.RemoveAll)
	l := b.claim(t)
	answers := b.executing(t, l, b.request(waiting))
	l.BeginStop()
	if got := <-answers; !errors.Is(got.err, queue.ErrStopping) {
		t.Fatalf("%+v", got)
	}
	b.wantAlive(t, run, process.Alive)
}

func TestDirectoryThatComesBackWasNeverLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	dir := b.runs.dir(run.ID)
	b.lose(t, run, func(dir string) error { return os.Rename(dir, dir+".away") })
	if err := b.runs.Recover(bound(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	answers := b.executing(t, b.claim(t), b.request(waiting))
	b.letGo(t)
	if got := <-answers; got.err != nil || text(got.Exit.Code) != "5" || got.LogTail != "first\nlast\n" {
		t.Fatalf("%+v", got)
	}
}

// With its shim gone too there is nobody left who could tell how it ends: it is over, and what is left of it is ended.
func TestRunWithoutDirectoryAndShimIsOver(t *testing.T) {
	t.Parallel()
	for name, how := range losses(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			run := b.orphaned(t)
			b.wantAlive(t, run, process.Alive)
			b.lose(t, run, how)
			if res := b.execute(t, b.claim(t), b.request(waiting)); res.RunID != run.ID || res.Outcome != outcome.Crashed || res.Exit.Error != "run directory is lost" {
				t.Fatalf("%+v", res)
			}
			b.wantAlive(t, run, process.Dead)
		})
	}
}

// It can't be told why, but it ends, whatever it thinks of that; and the reason is noted.
func TestRunAdriftIsEndedWhenItIsWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		noted  bool
		stop   bool
	}{
		"gentle":                    {waiting, true, false},
		"its start not noted":       {waiting, false, false},
		"it doesn't want to":        {`trap '' TERM; echo first; while :; do sleep 1; done`, true, false},
		"its shim is stopped":       {waiting, true, true},
		"nothing of it is believed": {`trap '' TERM; echo first; while :; do sleep 1; done`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *Config) { c.KillPatience = 500 * time.Millisecond })
			run := b.pinned(t, c.script)
			b.lose(t, run, os.RemoveAll)
			if !c.noted {
				b.forgotten(t, run)
			}
			if c.stop {
				runtest.Freeze(t, *run.ShimPID)
			}
			if err := b.runs.EndTask(bound(t), b.task); err != nil {
				t.Fatal(err)
			}
			b.wantAlive(t, run, process.Dead)
			if now := b.list(t)[0]; now.State != StateFinished || *now.Outcome != outcome.Cancelled {
				t.Fatalf("%+v", now)
			}
		})
	}
}

// Such as a disk that isn't mounted for a moment: the runs are too few to be a mass death.
func TestLostPlaceOfAllDirectoriesEndsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	away := b.dir + ".away"
	if err := os.Rename(b.dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_ = b.runs.Recover(bound(t)) // which tells of it
		if sight := b.seem(t, run.ID)[run.ID]; sight.Process != process.Alive {
			t.Errorf("the run seems %s", sight.Process)
		}
	}
	answers := b.executing(t, b.claim(t), b.request(waiting))
	if err := os.Rename(away, b.dir); err != nil {
		t.Fatal(err)
	}
	b.wantAlive(t, run, process.Alive)
	b.letGo(t)
	if got := <-answers; got.err != nil || got.RunID != run.ID || text(got.Exit.Code) != "5" {
		t.Errorf("%+v", got)
	}
}

// Nor does it when the shims died meanwhile, which nobody can tell from a disk that is away: it is looked at again later.
func TestLostPlaceOfAllDirectoriesDecidesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.orphaned(t)
	away := b.dir + ".away"
	if err := os.Rename(b.dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_ = b.runs.Recover(bound(t)) // which tells of it
		if sight := b.seem(t, run.ID)[run.ID]; sight.Process != process.Unknown {
			t.Errorf("the run seems %s", sight.Process)
		}
	}
	l := b.claim(t)
	_, err := b.runs.Execute(bound(t), l, b.request(waiting).request())
	if _, ok := errors.AsType[*queue.SnoozeError](err); !ok {
		t.Error(err)
	}
	b.wantAlive(t, run, process.Alive)
	if err := os.Rename(away, b.dir); err != nil {
		t.Fatal(err)
	}
	if res := b.execute(t, l, b.request(waiting)); res.RunID != run.ID || res.Outcome != outcome.Crashed {
		t.Errorf("%+v", res)
	}
}
