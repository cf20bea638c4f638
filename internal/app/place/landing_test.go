package place

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"orch/internal/git"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// offer makes work that passes its gates and puts it into the repository, as a landing does first.
func (s *site) offer(t *testing.T, files map[string]string) string {
	t.Helper()
	s.prepare(t).Commit("work", files)
	head, err := s.Inspect(t.Context(), s.task)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.mirror(t.Context(), s.task)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{git.HeadPrefix + s.task.Key, git.LandPrefix + s.task.Key} {
		if err := m.SetRef(t.Context(), ref, head.Commit, ""); err != nil {
			t.Fatal(err)
		}
		if err := s.forge.Publish(t.Context(), repoOf(s.task), m.Dir(), ref); err != nil {
			t.Fatal(err)
		}
	}
	return head.Commit
}

// A task whose landing was returned in another data root goes on with what it had, and may rebase it.
func TestPrepare_GoesOnWithWhatWasOfferedInAnotherRoot(t *testing.T) {
	t.Parallel()
	source := testgit.New(t, map[string]string{"README": "start\n"})
	first, second := newSiteOf(t, testdb.New(t), source), newSiteOf(t, testdb.New(t), source)
	head := first.offer(t, map[string]string{"work": "w\n"})
	base := source.Commit("somebody else's", map[string]string{"other": "o\n"})
	second.task.PassedCommit = head
	var agent *testgit.Repo
	for range 2 {
		agent = second.prepare(t)
		if agent.Head() != head || agent.Git("symbolic-ref", "HEAD") != "refs/heads/orch/demo-1" {
			t.Fatalf("begins at %s, not at %s", agent.Head(), head)
		}
	}
	agent.Git("rebase", "-q", base)
	again := agent.Commit("resolved", map[string]string{"more": "m\n"})
	got, err := second.Inspect(t.Context(), second.task)
	if err != nil || got.Commit != again || got.Base != base || len(got.Dirty) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if agent = second.prepare(t); agent.Head() != again || agent.Read("work") != "w\n" {
		t.Errorf("the next round begins at %s, not at %s", agent.Head(), again)
	}
}

// Keys begin again in another database: what the repository has of a former task is nobody's to go on with.
func TestPrepare_DoesntGoOnWithTheWorkOfAnotherTask(t *testing.T) {
	t.Parallel()
	source := testgit.New(t, map[string]string{"README": "start\n"})
	first, second := newSiteOf(t, testdb.New(t), source), newSiteOf(t, testdb.New(t), source)
	head := first.offer(t, map[string]string{"work": "w\n"})
	for _, passed := range []string{"", strings.Repeat("1", 40)} {
		second.task.PassedCommit = passed
		if agent := second.prepare(t); agent.Head() != source.Head() {
			t.Errorf("begins at %s; offered is %s, the base %s", agent.Head(), head, source.Head())
		}
	}
}

// A landing is gone on with as long as its task hasn't ended, wherever the task is by now.
func TestRemove_TakesTheLandingOfATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	other := uuid.New()
	for name, test := range map[string]struct {
		state        task.State
		root         *uuid.UUID
		mirror, repo int // refs of the landing that stay
	}{
		"blocked":            {task.Blocked, nil, 2, 2},
		"goes on elsewhere":  {task.Active, &other, 0, 2},
		"done":               {task.Done, nil, 0, 0},
		"cancelled":          {task.Cancelled, nil, 0, 0},
		"cancelled, nowhere": {task.Cancelled, nil, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.offer(t, map[string]string{"work": "w\n"})
			s.task.State, s.task.RootID = test.state, test.root
			if strings.HasSuffix(name, "nowhere") { // somebody moved the repository away
				moved := s.task.Location + "-moved"
				if err := os.Rename(s.task.Location, moved); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = os.Rename(moved, s.task.Location) }()
			}
			for range 2 {
				if err := s.Remove(t.Context(), s.task); err != nil {
					t.Fatal(err)
				}
			}
			count := func(dir string) int {
				refs := testgit.Open(t, dir).Git("for-each-ref", "--format=%(refname)", "refs/orch/head", "refs/orch/land")
				return len(strings.Fields(refs))
			}
			if got := count(filepath.Join(s.root.MirrorsDir(), "demo")); got != test.mirror {
				t.Errorf("%d refs stay in the mirror, want %d", got, test.mirror)
			}
			if name != "cancelled, nowhere" && count(s.task.Location) != test.repo {
				t.Errorf("%d refs stay in the repository, want %d", count(s.task.Location), test.repo)
			}
		})
	}
}
