package git_test

import (
	"errors"
	"strings"
	"testing"

	"orch/internal/git"
)

// A file that one side renamed and the other changed conflicts, where both added another one of its new name too: some gits say so
// and call the merge clean, with conflict markers in it.
func TestConflictThatGitCallsCleanIsAConflict(t *testing.T) {
	t.Parallel()
	lines := func(name string, common int) string {
		return strings.Repeat(name+" line\n", 3) + strings.Repeat("common\n", common)
	}
	f := setup(t, map[string]string{"a": lines("a", 10), "c": lines("c", 12)})
	src := f.source
	src.Git("checkout", "-q", "-b", "topic")
	head := src.Commit("theirs", map[string]string{"c": "c line\nchanged\nc line\n" + strings.Repeat("common\n", 12), "b": lines("b", 8)})
	src.Git("checkout", "-q", "main")
	src.Git("rm", "-q", "c")
	base := src.Commit("renamed", map[string]string{"b": lines("b", 8)})
	f.fetch(t)
	for _, method := range []git.Method{git.Rebase, git.Merge, git.Squash} {
		made, err := f.mirror.Compose(t.Context(), git.Change{Method: method, Base: base, Head: head}, gate())
		if conflict, ok := errors.AsType[*git.ConflictError](err); !ok || conflict.Paths[0] != "b" {
			t.Errorf("%s made %+v, %v", method, made, err)
		}
	}
}
