package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"orch/internal/git"
	"orch/internal/git/workspace"
	"orch/internal/testgit"
)

// plant puts everything that could make git run a program into the repository of a hostile agent. The programs leave marker.
func plant(t *testing.T, repo *testgit.Repo, marker string) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "evil")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >>"+marker+"\ncat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	hooks := filepath.Join(repo.Dir, ".git", "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{
		"pre-commit", "post-checkout", "post-index-change", "reference-transaction", "post-merge",
		"pre-auto-gc", "fsmonitor-watchman", "post-commit", "update", "pre-receive", "post-rewrite",
	} {
		if err := os.Symlink(script, filepath.Join(hooks, hook)); err != nil {
			t.Fatal(err)
		}
	}
	var config strings.Builder
	for _, key := range []string{
		"core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy",
		"core.alternateRefsCommand", "diff.external", "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge",
		"filter.evil.process", "merge.evil.driver", "uploadpack.packObjectsHook", "gpg.program", "credential.helper",
		"pager.upload-pack", "pager.log", "alias.upload-pack", "alias.status", "remote.origin.uploadpack", "interactive.diffFilter", "trailer.x.command",
	} {
		section, name := key[:strings.LastIndex(key, ".")], key[strings.LastIndex(key, ".")+1:]
		head, sub, two := strings.Cut(section, ".")
		if two {
			head += ` "` + sub + `"`
		}
		value := script
		if head == "alias" {
			value = "!" + script
		}
		config.WriteString("[" + head + "]\n\t" + name + " = " + value + "\n")
	}
	config.WriteString("[core]\n\thooksPath = " + hooks + "\n[filter \"evil\"]\n\trequired = true\n[commit]\n\tgpgSign = true\n" +
		"[remote \"origin\"]\n\turl = ext::" + script + "\n\tpromisor = true\n[extensions]\n\tpartialClone = origin\n" +
		"[submodule]\n\trecurse = true\n[fetch]\n\trecurseSubmodules = true\n")
	file, err := os.OpenFile(filepath.Join(repo.Dir, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(config.String()); err != nil {
		t.Fatal(err)
	}
}

func TestHostileWorkspaceRunsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "b": "1\n"})
	ctx := t.Context()
	marker := filepath.Join(f.dir, "ran")
	w, agent := f.workspace(t)
	agent.Commit("work", map[string]string{
		".gitattributes": "* filter=evil diff=evil merge=evil\n", "a": "2\n",
		".gitmodules": "[submodule \"nested\"]\n\tpath = nested\n\turl = ./nested\n\tignore = none\n",
	})
	nested := testgit.NewAt(t, filepath.Join(agent.Dir, "nested"), map[string]string{"n": "1\n"})
	agent.Git("-c", "advice.addEmbeddedRepo=false", "add", "nested")
	agent.Git("commit", "-q", "-m", "a submodule")
	head := agent.Head()
	nested.Write(map[string]string{"n": "2\n", ".gitattributes": "* filter=evil\n"})
	other := testgit.NewAt(t, filepath.Join(agent.Dir, "other"), map[string]string{"o": "1\n"})
	other.Write(map[string]string{"o": "2\n", ".gitattributes": "* filter=evil\n"})
	agent.Write(map[string]string{"b": "2\n", "untracked": "u\n"})
	for _, r := range []*testgit.Repo{agent, nested, other} {
		plant(t, r, marker)
	}
	_, _ = agent.Try("status")
	if ran, err := os.ReadFile(marker); err != nil || !strings.Contains(string(ran), "evil") {
		t.Fatalf("what was planted doesn't work at all: %q, %v", ran, err)
	}
	_ = os.Remove(marker)

	if got := must[string](t)(w.Head(ctx)); got != head {
		t.Errorf("head is %s, want %s", got, head)
	}
	dirty := strings.Join(must[[]string](t)(w.Dirty(ctx)), " ")
	for _, want := range []string{"b", "other/", "untracked"} {
		if !strings.Contains(dirty, want) {
			t.Errorf("%s isn't dirty: %s", want, dirty)
		}
	}
	salvaged := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1"))
	if got := f.inMirror(t, "show", salvaged+":other/o"); got != "2" {
		t.Errorf("other/o is %q", got)
	}
	if body := f.inMirror(t, "log", "-1", "--format=%b", salvaged); !strings.Contains(body, `"other"`) {
		t.Errorf("the repository within isn't told: %q", body)
	}
	base := f.source.Commit("meanwhile", map[string]string{"z": "z\n"})
	f.fetch(t)
	replayed := must[git.Replayed](t)(f.mirror.Replay(ctx, base, head, git.Identity{Name: "orch", Email: "o@x"}))
	if err := f.mirror.Checkout(ctx, filepath.Join(f.dir, "c"), replayed.Commit); err != nil {
		t.Error(err)
	}
	again, _ := f.workspace(t)
	if err := again.Reset(ctx, "refs/orch/salvage/k/2"); err != nil {
		t.Error(err)
	}
	agent.Remove(".git/refs/heads/orch/k")
	if again, _ = f.workspace(t); must[string](t)(again.Head(ctx)) != head {
		t.Error("not made anew")
	}
	if err := workspace.Remove(ctx, f.mirror, again.Dir(), "orch/k"); err != nil {
		t.Error(err)
	}
	if ran, err := os.ReadFile(marker); err == nil {
		t.Errorf("planted programs ran:\n%s", ran)
	}
}

// Whatever lies around in a work tree is kept or told, and nothing blocks.
func TestSalvageOddities(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"file": "f\n", "dir/x": "x\n", "link": "l\n", "gone": "g\n"})
	ctx := t.Context()
	w, agent := f.workspace(t)
	if id := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1")); id != "" {
		t.Errorf("nothing to salvage, but %s", id)
	}
	names := []string{"with space", "tab\there", "new\nline", "quote\"d", "-dash", "ünï", "\xff\xfe", ":(glob)*", "a*b"}
	for _, name := range names {
		agent.Write(map[string]string{name: "odd " + name})
	}
	agent.Remove("gone")
	agent.Remove("dir")
	agent.Remove("file")
	agent.Write(map[string]string{"file/now/a/dir": "d"})
	for link, target := range map[string]string{"dir": "/etc", "dangling": "nowhere", "self": "self"} {
		agent.Symlink(target, link)
	}
	if err := syscall.Mkfifo(filepath.Join(agent.Dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent.Write(map[string]string{"unreadable": "u", "closed/in": "i", "repo/.gitignore": "skipped\n", "repo/skipped": "s", "repo/kept": "k"})
	testgit.NewAt(t, filepath.Join(agent.Dir, "repo"), nil)
	testgit.NewAt(t, filepath.Join(agent.Dir, "repo", "inner"), map[string]string{"i": "i"})
	for _, name := range []string{"unreadable", "closed"} {
		if err := os.Chmod(filepath.Join(agent.Dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	before := agent.Git("status", "--porcelain")
	id := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1"))
	if after := agent.Git("status", "--porcelain"); after != before {
		t.Errorf("the work tree changed: %q, was %q", after, before)
	}
	kept := "\x00" + f.inMirror(t, "ls-tree", "-r", "-z", "--name-only", id)
	for _, name := range append(names, "file/now/a/dir", "dir", "dangling", "self", "repo/kept", "repo/inner/i") {
		if !strings.Contains(kept, "\x00"+name+"\x00") {
			t.Errorf("%q isn't kept", name)
		}
	}
	for _, name := range []string{"gone", "dir/x", "repo/skipped", "pipe"} {
		if strings.Contains(kept, "\x00"+name+"\x00") {
			t.Errorf("%q is kept", name)
		}
	}
	if os.Getuid() != 0 { // root can read anything
		body := f.inMirror(t, "log", "-1", "--format=%b", id)
		if !strings.Contains(body, "unreadable") || !strings.Contains(body, "closed") {
			t.Errorf("what couldn't be read isn't told: %q", body)
		}
	}
	// The same again is the same; more doesn't lose the former.
	if again := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1")); again != id {
		t.Errorf("again is %s, was %s", again, id)
	}
	agent.Write(map[string]string{"later": "l"})
	later := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1"))
	if within := must[bool](t)(f.mirror.IsAncestor(ctx, id, later)); later == id || !within {
		t.Errorf("%s was overwritten by %s", id, later)
	}
	if err := workspace.Remove(ctx, f.mirror, w.Dir(), "orch/k"); err != nil {
		t.Error(err)
	}
}
