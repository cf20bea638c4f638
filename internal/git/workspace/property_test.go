package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/git/workspace"
	"orch/internal/lfs"
	"orch/internal/testgit"
)

// mess is an agent at work: each step it takes may undo what the ones before did.
type mess struct {
	agent *testgit.Repo
	wrote int
}

func (m *mess) step(rt *rapid.T) {
	path := rapid.SampledFrom([]string{"a", "dir", "dir/b", "dir/new", "deep/er/x", "repo/in", "repo/deep/in", "x.o", "-n", "b\nc"}).Draw(rt, "path")
	within := filepath.Join(m.agent.Dir, path)
	switch rapid.SampledFrom([]string{
		"write", "write", "write", "write", "remove", "link", "pipe", "close", "commit", "add", "side", "detach", "reset", "init",
	}).Draw(rt, "step") {
	case "write":
		m.wrote++
		_ = os.MkdirAll(filepath.Dir(within), 0o755)
		if info, err := os.Lstat(within); err == nil && !info.Mode().IsRegular() {
			return
		}
		_ = os.WriteFile(within, fmt.Appendf(nil, "content %d\n", m.wrote), 0o644)
	case "remove":
		_ = os.RemoveAll(within)
	case "link":
		_ = os.Symlink("/etc", within)
	case "pipe":
		_ = syscall.Mkfifo(within, 0o600)
	case "close":
		_ = os.Chmod(within, 0o555)
	case "commit":
		_, _ = m.agent.Try("add", "-A")
		_, _ = m.agent.Try("commit", "-q", "-m", "step")
	case "add":
		_, _ = m.agent.Try("add", "--", path)
	case "side":
		_, _ = m.agent.Try("checkout", "-q", "-B", "side")
	case "detach":
		_, _ = m.agent.Try("checkout", "-q", "--detach")
	case "reset":
		_, _ = m.agent.Try("rm", "-q", "--cached", "-r", "--", path)
	case "init":
		if _, err := m.agent.Try("init", "-q", "repo"); err == nil && rapid.Bool().Draw(rt, "with a commit") {
			repo := &mess{agent: testgit.Open(noTest{}, filepath.Join(m.agent.Dir, "repo"))}
			_, _ = repo.agent.Try("add", "-A")
			_, _ = repo.agent.Try("commit", "-q", "-m", "within")
		}
	}
}

// noTest is for what may fail.
type noTest struct{ testing.TB }

func (noTest) Helper() {}

// contents are those of all files that aren't ignored.
func (m *mess) contents(rt *rapid.T) []string {
	var all []string
	err := filepath.WalkDir(m.agent.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Type().IsRegular() && !strings.HasSuffix(path, ".o"):
			content, err := os.ReadFile(path)
			all = append(all, string(content))
			return err
		}
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	return all
}

// Whatever an agent left, no byte of it that isn't ignored is lost by the next round, which starts clean.
func TestResetLosesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "dir/b": "2\n", ".gitignore": "*.o\n"})
	w, agent := f.workspace(t)
	m := &mess{agent: agent}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			m.step(rt)
		}
		want := m.contents(rt)
		if rapid.Bool().Draw(rt, "a pipe for .gitignore") {
			_ = os.Remove(filepath.Join(agent.Dir, ".gitignore"))
			_ = syscall.Mkfifo(filepath.Join(agent.Dir, ".gitignore"), 0o600)
		}
		ref, err := workspace.NextSalvageRef(t.Context(), f.mirror, "k")
		if err != nil {
			rt.Fatal(err)
		}
		if err := w.Reset(t.Context(), ref); err != nil {
			rt.Fatal(err)
		}
		if _, err := w.Head(t.Context()); err != nil { // what the branch has is in the mirror then
			rt.Fatal(err)
		}
		kept := map[string]bool{}
		objects := f.inMirror(t, "rev-list", "--objects", "--no-object-names", "--all")
		out, err := f.mirror.Git().Run(t.Context(), f.mirror.Dir(), []byte(objects+"\n"), "cat-file", "--batch")
		if err != nil {
			rt.Fatal(err)
		}
		for _, content := range lfs.Objects(out) {
			kept[string(content)] = true
		}
		for _, content := range m.contents(rt) { // what lies where a submodule may be filled in stays there
			kept[content] = true
		}
		for _, content := range want {
			if !kept[content] {
				rt.Errorf("%q is lost", content)
			}
		}
		if status, err := agent.Try("status", "--porcelain", "--branch"); status != "## orch/k" {
			rt.Errorf("the next round starts with %q, %v", status, err)
		}
		if dirty, err := w.Dirty(t.Context()); err != nil || len(dirty) > 0 {
			rt.Errorf("dirty is %q, %v", dirty, err)
		}
	})
}
