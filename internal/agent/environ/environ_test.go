package environ

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"orch/internal/process"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	e, err := Build(Request{
		Inherited: []string{"PATH=/bin", "TZ=UTC", "HOME=/root", "KEY=sesame-open", "EDITOR=vi", "ORCH_API_TOKEN=hunter2hunter2", "SHORT=abc"},
		Names:     []string{"KEY", "ORCH_API_TOKEN", "SHORT", "MISSING"},
		Set:       []string{"ORCH_TASK=demo-1234", "TZ=Europe/Rome", "MODE=production", "URL=http://x.example"},
		Plain:     []string{"MODE"},
		HomesDir:  "/homes", Agent: "coder", TmpDir: "/run/tmp", PromptFile: "/run/stdin",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"HOME=/homes/coder", "KEY=sesame-open", "MODE=production", "ORCH_PROMPT_FILE=/run/stdin", "ORCH_TASK=demo-1234", "PATH=/bin", "SHORT=abc",
		"TMPDIR=/run/tmp", "TZ=Europe/Rome", "URL=http://x.example",
	}
	if !slices.Equal(e.Vars, want) {
		t.Errorf("variables\n%q, want\n%q", e.Vars, want)
	}
	secrets := []process.Secret{{Name: "KEY", Value: "sesame-open"}, {Name: "TZ", Value: "Europe/Rome"}, {Name: "URL", Value: "http://x.example"}}
	if !slices.Equal(e.Secrets, secrets) {
		t.Errorf("secrets %q", e.Secrets)
	}
	if value, ok := Get(e.Vars, "TZ"); !ok || value != "Europe/Rome" {
		t.Errorf("TZ %q", value)
	}
	if got := Names([]string{"A=1", "B="}); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("names %q", got)
	}
}

func TestHomeIsPassedOnWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	for inherited, want := range map[string]string{"HOME=/root": "/root", "NONE=": "/homes/coder"} {
		e, err := Build(Request{Inherited: []string{inherited}, Names: []string{"HOME"}, HomesDir: "/homes", Agent: "coder", TmpDir: "/tmp"})
		if got, _ := Get(e.Vars, "HOME"); err != nil || got != want || len(e.Secrets) != 0 {
			t.Errorf("HOME is %q with secrets %q, %v", got, e.Secrets, err)
		}
	}
}

func TestBadEntries(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"no name":       {Set: []string{"x"}},
		"empty name":    {Set: []string{"=x"}},
		"zero byte":     {Set: []string{"A=\x00"}},
		"agent outside": {HomesDir: "/homes", Agent: "../x"},
		"agent hidden":  {HomesDir: "/homes", Agent: ".seeds"},
	} {
		if _, err := Build(r); !errors.Is(err, ErrBadEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGateLeavesNothingForTheNextGate(t *testing.T) {
	t.Parallel()
	homes := t.TempDir()
	gate := func() []string {
		e, err := Build(Request{Inherited: []string{}, HomesDir: homes, Cache: "demo", TmpDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Prepare(nil), e.Begin()); err != nil {
			t.Fatal(err)
		}
		return e.Vars
	}
	first, second := gate(), gate()
	home, _ := Get(first, "HOME")
	if err := os.WriteFile(filepath.Join(home, ".npmrc"), []byte("script-shell=true"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, _ := Get(second, "HOME")
	if left, err := os.ReadDir(other); err != nil || len(left) != 0 || home == other {
		t.Errorf("the next HOME holds %v, %v", left, err)
	}
	for _, name := range []string{"XDG_CACHE_HOME", "GOMODCACHE", "npm_config_cache"} {
		one, _ := Get(first, name)
		two, _ := Get(second, name)
		if info, err := os.Stat(one); err != nil || !info.IsDir() || one != two {
			t.Errorf("%s: %q and %q, %v", name, one, two, err)
		}
	}
}

// sown makes an agent's home and sows into it.
func sown(t *testing.T, homes string, seeds ...Seed) (string, error) {
	t.Helper()
	e, err := Build(Request{Inherited: []string{}, HomesDir: homes, Agent: "coder", TmpDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(homes, "coder"), e.Prepare(seeds)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, content string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Errorf("%s holds %q, %v", filepath.Base(path), got, err)
	}
}

func TestHomeIsSeededOnceAndAgainWhenItsSourceChanges(t *testing.T) {
	t.Parallel()
	homes, source := t.TempDir(), filepath.Join(t.TempDir(), "credentials")
	seed := Seed{From: source, To: ".claude/.credentials.json"}
	write(t, source, "first")
	home, err := sown(t, homes, seed)
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(home, seed.To)
	want(t, there, "first")
	if info, err := os.Stat(there); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	write(t, there, "refreshed by the agent")
	if _, err := sown(t, homes, seed); err != nil {
		t.Fatal(err)
	}
	want(t, there, "refreshed by the agent")
	write(t, source, "second")
	if _, err := sown(t, homes, seed); err != nil {
		t.Fatal(err)
	}
	want(t, there, "second")
	if left, err := os.ReadDir(filepath.Dir(there)); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestSeedDoesNotFollowPlantedLinks(t *testing.T) {
	t.Parallel()
	homes, outside, source := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "token")
	write(t, source, "token")
	home, err := sown(t, homes)
	if err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(outside, "victim")
	write(t, victim, "untouched")
	if err := errors.Join(os.Symlink(victim, filepath.Join(home, "file")), os.Symlink(outside, filepath.Join(home, "dir"))); err != nil {
		t.Fatal(err)
	}
	if _, err := sown(t, homes, Seed{From: source, To: "file"}); err != nil {
		t.Fatal(err)
	}
	want(t, filepath.Join(home, "file"), "token")
	want(t, victim, "untouched")
	if _, err := sown(t, homes, Seed{From: source, To: "dir/token"}); !errors.Is(err, ErrSeed) {
		t.Errorf("followed a link out: %v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("outside holds %v, %v", left, err)
	}
}

func TestSeedsThatCantBeCopied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fine, big := filepath.Join(dir, "fine"), filepath.Join(dir, "big")
	write(t, fine, "x")
	write(t, big, "")
	if err := os.Truncate(big, maxSeed+1); err != nil {
		t.Fatal(err)
	}
	for name, seed := range map[string]Seed{
		"missing": {From: filepath.Join(dir, "missing"), To: "x"}, "relative": {From: "x", To: "x"}, "a directory": {From: dir, To: "x"},
		"too big": {From: big, To: "x"}, "above": {From: fine, To: "../x"}, "the home itself": {From: fine, To: "."},
	} {
		if _, err := sown(t, t.TempDir(), seed); !errors.Is(err, ErrSeed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
