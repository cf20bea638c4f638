package workspace_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/lfs"
)

// stored is a large file's pointer, and where git-lfs keeps its content.
func stored(content string) (p lfs.Pointer, text string) {
	sum := sha256.Sum256([]byte(content))
	p = lfs.Pointer{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	return p, fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", p.OID, p.Size)
}

// An agent that has git-lfs works with contents where commits have pointers: git, with its filter, finds no difference.
func TestSmudgedLFSFileIsClean(t *testing.T) {
	t.Parallel()
	const content = "a large file\n"
	_, pointer := stored(content)
	f := setup(t, map[string]string{"a.bin": pointer, "b.bin": pointer, "c\nd.bin": pointer, "plain": "p\n", ".gitattributes": "*.bin filter=lfs\n"})
	ctx := t.Context()
	w, agent := f.workspace(t)
	agent.Write(map[string]string{"a.bin": content, "b.bin": "another one, not added yet\n", "c\nd.bin": content, "plain": "changed\n"})
	if dirty := strings.Join(must[[]string](t)(w.Dirty(ctx)), " "); dirty != "b.bin plain" {
		t.Errorf("dirty is %q", dirty)
	}
	if err := w.Reset(ctx, "refs/orch/salvage/k/1"); err != nil {
		t.Fatal(err)
	}
	if agent.Read("a.bin") != content || agent.Read("b.bin") != pointer || agent.Read("plain") != "p\n" {
		t.Error("not what git-lfs would leave")
	}
	for name, want := range map[string]string{"a.bin": strings.TrimSpace(pointer), "b.bin": "another one, not added yet", "plain": "changed"} {
		if got := f.inMirror(t, "show", "refs/orch/salvage/k/1:"+name); got != want {
			t.Errorf("%s is kept as %q", name, got)
		}
	}
	if !must[bool](t)(w.Clean(ctx)) {
		t.Error("dirty after the reset")
	}
}

// The content of a large file isn't in any commit: it goes where the commit goes.
func TestNewLFSObjectsFollowTheirPointers(t *testing.T) {
	t.Parallel()
	old, oldText := stored("there before\n")
	f := setup(t, map[string]string{"old.bin": oldText})
	w, agent := f.workspace(t)
	added, addedText := stored("new\n")
	passing, passingText := stored("in between\n")
	aside, asideText := stored("on another branch\n")
	missing, missingText := stored("nowhere\n")
	store := lfs.Of(filepath.Join(agent.Dir, ".git"))
	for p, content := range map[lfs.Pointer]string{old: "there before\n", added: "new\n", passing: "in between\n", aside: "on another branch\n"} {
		path, err := filepath.Rel(agent.Dir, store.Path(p))
		if err != nil {
			t.Fatal(err)
		}
		agent.Write(map[string]string{path: content})
	}
	agent.Commit("one", map[string]string{"new.bin": passingText})
	agent.Commit("two", map[string]string{"new.bin": addedText, "copy.bin": oldText, "missing.bin": missingText})
	must[string](t)(w.Head(t.Context()))
	mirror := lfs.Of(f.mirror.Dir())
	for p, want := range map[lfs.Pointer]bool{old: false, added: true, passing: true, aside: false, missing: false} {
		if mirror.Has(p) != want {
			t.Errorf("%d bytes are in the mirror: %v", p.Size, !want)
		}
	}
	agent.Git("checkout", "-q", "-b", "side")
	agent.Commit("aside", map[string]string{"aside.bin": asideText})
	must[string](t)(w.Salvage(t.Context(), "refs/orch/salvage/k/1"))
	if !mirror.Has(aside) {
		t.Error("salvaged without its content")
	}
}
