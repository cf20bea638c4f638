package form_test

import (
	"os/exec"
	"testing"

	"orch/internal/httpapi/form"
)

// git itself is the judge of names.
func TestBranchNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"main", "release/1.x", "a-b", "ä", "a@b", "@a", "a.b", "HEAD/x", "a/b/c", "x.lockx",
		"-a", "a..b", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", `a\b`, "a//b", "/a", "a/", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a@{b",
		"a\tb", "a\x7fb",
	} {
		want := exec.CommandContext(t.Context(), "git", "check-ref-format", "--branch", name).Run() == nil
		if got := form.BranchName(name); got != want {
			t.Errorf("%q: %v, git says %v", name, got, want)
		}
	}
	if !form.BranchName("") {
		t.Error("empty means the repository's own")
	}
}

func TestVariableNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"A": true, "_x1": true, "": false, "1A": false, "A=b": false, "A b": false, "Ä": false} {
		if got := form.VariableName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
