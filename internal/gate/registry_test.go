package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"orch/internal/queue"
)

func TestCommits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.commit("README", "start")
	base := b.head()
	l := b.claim()
	work := b.commit("work", "done")
	upstream := work
	upstream.Upstream = true
	dirty := work
	dirty.Dirty = []string{"left over.txt", "b", "c\nd"}
	for _, test := range []struct {
		name    string
		subject Subject
		outcome Outcome
		reason  string // a part of it
	}{
		{"no commit", base, Fail, "no commit of its own"},
		{"no branch", Subject{TaskID: b.taskID, Stage: "development", Round: 1}, Fail, "no commit of its own"},
		{"all of it upstream", upstream, Fail, "no commit of its own"},
		{"a commit", work, Pass, ""},
		{"dirty", dirty, Fail, `Paths: "left over.txt", b, "c\nd"`},
	} {
		result := b.check(l, Definition{Name: Commits}, test.subject)
		if result.Outcome != test.outcome || !strings.Contains(result.Reason, test.reason) || (result.Reason == "") != (test.reason == "") {
			t.Errorf("%s: %s, %q", test.name, result.Outcome, result.Reason)
		}
	}
	// A pass depends on more than the tree and is never reused.
	if again := b.check(l, Definition{Name: Commits}, work); again.Reused {
		t.Error("a pass of commits was reused")
	}
	if kept := b.evidence(); len(kept) != 6 || kept[0].Outcome != Pass || kept[1].Outcome != Fail || kept[1].Reason == "" {
		t.Errorf("evidence: %+v", kept)
	}
}

func TestCommits_NothingCommittedNamesThePaths(t *testing.T) {
	t.Parallel()
	paths := strings.Split(strings.Repeat("p ", 14)+"p", " ")
	reason := commitsReason(Subject{Commit: "c", BaseCommit: "c", Dirty: paths})
	if !strings.Contains(reason, "commit the work") || !strings.Contains(reason, "and 5 more") {
		t.Error(reason)
	}
}

func TestCommand_JudgesExactlyTheCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	red := b.commit("answer", "41")
	green := b.commit("answer", "42")
	d := Definition{Name: Command, Command: `cat answer; test "$(cat answer)" = 42`}
	l := b.claim()
	first := b.check(l, d, red)
	if first.Outcome != Fail || first.ExitCode == nil || *first.ExitCode != 1 || first.OutputTail != "41" || !strings.Contains(first.Reason, "exit code 1") {
		t.Errorf("red: %+v", first)
	}
	second := b.check(l, d, green)
	if second.Outcome != Pass || *second.ExitCode != 0 || second.Reused || second.RunID == nil || second.EvidenceID == 0 {
		t.Errorf("green: %+v", second)
	}
	if n := b.unconsumed(); n != 0 {
		t.Errorf("%d runs weren't consumed", n)
	}
	if job := l.Job(); job.RunID != nil || job.PinnedRoot == nil || *job.PinnedRoot != b.worker.RootID {
		t.Error("the job is still tied to the run, or not to the root that has the branch")
	}
	if key := b.runner.asked[0].Key; key != "gate:command:"+d.Hash()+":"+red.Commit {
		t.Error(key)
	}
}

func TestCommand_ReusesOnlyGreenForTreeAndDefinition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := Definition{Name: Command, Command: "test -e ok"}
	l := b.claim()
	red := b.commit("other", "")
	b.check(l, d, red)
	if b.check(l, d, red); b.runner.started != 2 {
		t.Errorf("a failure was reused: %d runs", b.runner.started)
	}
	green := b.commit("ok", "")
	first := b.check(l, d, green)
	sameTree := green
	b.git("commit", "--quiet", "--amend", "--message", "another commit of the same tree")
	sameTree.Commit = b.head().Commit
	again := b.check(l, d, sameTree)
	if !again.Reused || again.Outcome != Pass || again.EvidenceID != first.EvidenceID || b.runner.started != 3 {
		t.Errorf("not reused: %+v, %d runs", again, b.runner.started)
	}
	longer := d
	longer.Timeout = time.Hour
	if other := b.check(l, longer, green); other.Reused || b.runner.started != 4 {
		t.Error("evidence of another definition was reused")
	}
	other := b.commit("more", "")
	if other := b.check(l, d, other); other.Reused {
		t.Error("evidence of another tree was reused")
	}
}

func TestCommand_HowItEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, command, why, reason string }{
		{"not found", "no-such-program", "", "not found"},
		{"not executable", "touch x; ./x", "", "can't be executed"},
		{"signal", "kill -9 $$", "", "signal"},
		{"timeout", "true", "timeout", "within 7s"},
		{"stalled", "true", "stalled", "printed nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.runner.why = test.why
			result := b.check(b.claim(), Definition{Name: Command, Command: test.command, Timeout: 7 * time.Second}, b.commit("a", ""))
			if result.Outcome != Fail || !strings.Contains(result.Reason, test.reason) {
				t.Errorf("%s, %q", result.Outcome, result.Reason)
			}
		})
	}
}

func TestCommand_InterruptedIsNotJudged(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"interrupted", "never_started", "orphaned", "cancelled"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			l, s, d := b.claim(), b.commit("a", ""), Definition{Name: Command, Command: "true"}
			b.runner.why = why
			_, err := b.gates.Check(t.Context(), l, d, s)
			var unjudged *UnjudgedError
			var snooze *queue.SnoozeError
			if !errors.As(err, &unjudged) || unjudged.Why != why || !errors.As(err, &snooze) || snooze.After <= 0 {
				t.Fatalf("%v", err)
			}
			if len(b.evidence()) != 0 || b.unconsumed() != 0 {
				t.Error("it was judged, or its run is in the way")
			}
			b.runner.why = ""
			if result := b.check(l, d, s); result.Outcome != Pass || b.runner.started != 2 {
				t.Errorf("the next question: %+v", result)
			}
		})
	}
}

// A crash between the end of the run and its evidence: the next claim takes the same result.
func TestCommand_IsReentrant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, d := b.commit("a", ""), Definition{Name: Command, Command: "echo once"}
	l := b.claim()
	crash := errors.New("crash")
	cfg := b.gates.cfg
	cfg.ConsumeTx = func(context.Context, pgx.Tx, uuid.UUID) error { return crash }
	if _, err := New(cfg).Check(t.Context(), l, d, s); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if len(b.evidence()) != 0 || b.unconsumed() != 1 {
		t.Fatal("evidence without consumption")
	}
	if result := b.check(l, d, s); result.Outcome != Pass || result.OutputTail != "once\n" || b.runner.started != 1 {
		t.Errorf("%+v, %d runs", result, b.runner.started)
	}
}

func TestCommand_LostLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, l := b.commit("a", ""), b.claim()
	b.exec(`update jobs set epoch = epoch + 1`)
	for _, d := range []Definition{{Name: Command, Command: "true"}, {Name: Commits}} {
		if _, err := b.gates.Check(t.Context(), l, d, s); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	if len(b.evidence()) != 0 {
		t.Error("evidence was written without the lease")
	}
}

func TestCommand_RunnerErrorIsNoVerdict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l, s := b.claim(), b.commit("a", "")
	l2 := b.claim()
	cfg := b.gates.cfg
	cfg.Runner = failing{}
	if _, err := New(cfg).Check(t.Context(), l, Definition{Name: Command, Command: "true"}, s); !errors.Is(err, queue.ErrStopping) {
		t.Error(err)
	}
	cfg.Runner = nil
	if _, err := New(cfg).Check(t.Context(), l2, Definition{Name: Command, Command: "true"}, s); !errors.Is(err, errNoRunner) {
		t.Error(err)
	}
	if result := b.check(l, Definition{Name: Command, Command: "true"}, Subject{TaskID: b.taskID, Stage: "s", Round: 1}); result.Outcome != Fail {
		t.Error("a command passed without a commit")
	}
}

type failing struct{}

func (failing) RunCommand(context.Context, *queue.Lease, CommandRun) (CommandResult, error) {
	return CommandResult{}, queue.ErrStopping
}

func TestCommand_ForeignOutputIsStorable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := Definition{Name: Command, Command: `printf 'a\000b\377'; head -c 30000 /dev/zero | tr '\0' x; printf '\303\244end'; exit 3`}
	result := b.check(b.claim(), d, b.commit("a", ""))
	if len(result.OutputTail) > 8<<10 || !strings.HasSuffix(result.OutputTail, "xäend") {
		t.Errorf("%d bytes, %q", len(result.OutputTail), result.OutputTail[max(0, len(result.OutputTail)-20):])
	}
	if kept := b.evidence(); len(kept) != 1 || kept[0].OutputTail != result.OutputTail || kept[0].DurationMS == 0 {
		t.Errorf("%+v", kept)
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	for _, bad := range []Definition{{}, {Name: "artifact"}, {Name: Command}, {Name: Command, Command: " "}, {Name: Command, Command: "x", Timeout: -1}, {Name: Commits, Command: "x"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
		if _, err := New(Config{}).Check(t.Context(), nil, bad, Subject{}); err == nil {
			t.Errorf("%+v is checked", bad)
		}
	}
	r := New(Config{})
	for _, name := range Known() {
		if r.checks[name] == nil {
			t.Errorf("no check for %s", name)
		}
	}
	hashes := map[string]Definition{}
	for _, d := range []Definition{
		{Name: Command, Command: "ab"},
		{Name: Command, Command: "a", Paths: []string{"b"}},
		{Name: Command, Command: "a"},
		{Name: Command, Command: "ab", Timeout: 1},
		{Name: Command, Paths: []string{"ab"}},
		{Name: Command, Paths: []string{"a", "b"}},
	} {
		if other, twice := hashes[d.Hash()]; twice {
			t.Errorf("%+v and %+v share a hash", d, other)
		}
		hashes[d.Hash()] = d
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 60, -1).Draw(t, "text")
		junk := string(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "junk"))
		limit := rapid.IntRange(0, 80).Draw(t, "limit")
		tail := Tail(text+junk+text, limit)
		if len(tail) > limit || !utf8.ValidString(tail) || strings.Contains(tail, "\x00") {
			t.Fatalf("%q", tail)
		}
		clean := strings.ReplaceAll(text, "\x00", "")
		if kept := Tail(text, limit); !strings.HasSuffix(clean, kept) {
			t.Fatalf("%q is no end of %q", kept, clean)
		} else if len(text) <= limit && kept != clean {
			t.Fatalf("%q was cut to %q without need", clean, kept)
		} else if len(kept) < len(clean) && strings.IndexByte(text, 0) < 0 && len(kept) < limit-(utf8.UTFMax-1) {
			t.Fatalf("%q was cut by more than one character", clean)
		}
	})
}
