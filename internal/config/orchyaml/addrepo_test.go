package orchyaml_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/config/orchyaml"
)

func TestAddRepoToNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "orch.yaml")
	entry := orchyaml.RepoEntry{Name: "demo", Path: "/srv/demo", Base: "main", Test: "make test # all of it"}
	if err := addRepo(path, entry); err != nil {
		t.Fatal(err)
	}
	file, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	repo, ok := file.Repo("demo")
	if !ok || repo.Path != "/srv/demo" || repo.Test != "make test # all of it" || !strings.HasPrefix(file.Agents[0].Command.Shell, "echo 'edit") {
		t.Errorf("%+v in\n%s", repo, read(t, path))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := addRepo(path, entry); !errors.Is(err, orchyaml.ErrRepoExists) {
		t.Errorf("again: %v", err)
	}
	if text := read(t, path); strings.Contains(text, `\u`) || !file.Agents[0].Placeholder() {
		t.Errorf("the placeholder isn't readable, or isn't recognised:\n%s", text)
	}
	if err := addRepo(path, orchyaml.RepoEntry{Name: "two", Path: "two", Test: "none"}); err != nil {
		t.Error(err)
	}
	var taken *orchyaml.NameTakenError
	err = addRepo(path, orchyaml.RepoEntry{Name: "demo", Path: "/srv/other", Test: "none"})
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "the name demo is taken in "+path+"; choose another with --name") {
		t.Errorf("another of that name: %v", err)
	}
	err = addRepo(path, orchyaml.RepoEntry{Name: "deux", Path: filepath.Join(filepath.Dir(path), "two"), Base: "main", Test: "none"})
	if !errors.Is(err, orchyaml.ErrRepoExists) || !strings.Contains(err.Error(), "as two") {
		t.Errorf("the same by another name: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || left != nil {
		t.Errorf("left behind %q, %v", left, err)
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	const command = `my-agent --say "it's" # all`
	file, err := parseFile("/orch.yaml", []byte(orchyaml.Template(command)))
	if err != nil || len(file.Agents) != 1 || file.Agents[0].Command.Shell != command || file.Agents[0].Placeholder() {
		t.Errorf("%+v, %v", file, err)
	}
	// As files have it that were made when > and & were written as escapes.
	old := strings.NewReplacer(">", `\u003e`, "&", `\u0026`).Replace(orchyaml.Template(""))
	if file, err = parseFile("/orch.yaml", []byte(old)); err != nil || !file.Agents[0].Placeholder() {
		t.Errorf("%+v, %v", file, err)
	}
}

func TestAddRepoKeepsTheRest(t *testing.T) {
	t.Parallel()

	block := func(indent string) string {
		return indent + "- name: new\n" + indent + "  forge: local\n" + indent + "  path: /new\n" + indent + "  test: make\n"
	}
	for name, test := range map[string]struct{ before, after string }{
		"at the end":      {agents + "repos:\n  - {name: a, path: /a, test: none}\n", agents + "repos:\n  - {name: a, path: /a, test: none}\n" + block("  ")},
		"no newline":      {agents + "repos:\n  - {name: a, path: /a, test: none}", agents + "repos:\n  - {name: a, path: /a, test: none}\n" + block("  ")},
		"no repos":        {agents + "# bye\n", agents + "# bye\nrepos:\n" + block("  ")},
		"null":            {"repos: # ours\n" + agents, "# ours\nrepos:\n" + block("  ") + agents},
		"empty list":      {"repos: []\n# b\n" + agents, "repos:\n" + block("  ") + "# b\n" + agents},
		"not indented":    {"repos:\n- name: a\n  path: /a\n  test: none\n\n# agents\n" + agents, "repos:\n- name: a\n  path: /a\n  test: none\n" + block("") + "\n# agents\n" + agents},
		"deeply indented": {"repos:\n      - name: a\n        path: /a\n        test: none\n" + agents, "repos:\n      - name: a\n        path: /a\n        test: none\n" + block("      ") + agents},
		"literal": {
			"# head\nrepos: # ours\n  # the first\n  - name: a\n    path: /a # here\n    test: |\n      make\n\n      # not a comment\n\n# agents\n" + agents,
			"# head\nrepos: # ours\n  # the first\n  - name: a\n    path: /a # here\n    test: |\n      make\n\n      # not a comment\n" + block("  ") + "\n# agents\n" + agents,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "orch.yaml", test.before)
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := addRepo(path, orchyaml.RepoEntry{Name: "new", Path: "/new", Test: "make"}); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); got != test.after {
				t.Errorf("now it is\n%s\nwant\n%s", got, test.after)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestAddRepoRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before string
		entry  orchyaml.RepoEntry
		want   string
	}{
		"flow list":   {agents + "repos: [{name: a, path: /a, test: none}]\n", orchyaml.RepoEntry{Name: "b", Path: "/b", Test: "none"}, "add this to the list"},
		"broken file": {"repos: [\n", orchyaml.RepoEntry{Name: "b", Path: "/b", Test: "none"}, "orch.yaml:1:"},
		"no test":     {agents, orchyaml.RepoEntry{Name: "b", Path: "/b"}, "has no test"},
		"bad name":    {agents, orchyaml.RepoEntry{Name: "B b", Path: "/b", Test: "none"}, "needs a name"},
		"no agent":    {"", orchyaml.RepoEntry{Name: "b", Path: "/b", Test: "none"}, "needs an agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "orch.yaml", test.before)
			err := addRepo(path, test.entry)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, got %v", test.want, err)
			}
			if got := read(t, path); got != test.before {
				t.Errorf("the file changed: %s", got)
			}
		})
	}
}

func TestAddRepoThroughALink(t *testing.T) {
	t.Parallel()
	path := write(t, "real.yaml", agents)
	link := filepath.Join(t.TempDir(), "orch.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := addRepo(link, orchyaml.RepoEntry{Name: "b", Path: "/b", Test: "none"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || !strings.Contains(read(t, path), "name: b") {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
}

// TestAddRepoQuotes writes values that YAML would read as something else.
func TestAddRepoQuotes(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"true", "null", "1", "~", "yes", "a: b", "a #b", "- x", "'", `"x"`, "{a}", "a\nb\n", "\ttab", " lead", "trail ", "ünïcödé", "\\", "%x", "@x", "0x1f",
		"2024-01-01", "<<", "?", "? x", ":", "x:", "!x", "&x", "*x", "|", ">", "…", "\u2028", "a,b", "[x]", "=", ".5", "1_000", "0o7", "no", ".inf",
	} {
		path := filepath.Join(t.TempDir(), "orch.yaml")
		if err := addRepo(path, orchyaml.RepoEntry{Name: "demo", Path: "/srv/demo", Test: "none", Setup: command}); err != nil {
			t.Errorf("%q: %v", command, err)
			continue
		}
		file, err := loadFile(path)
		if err != nil || file.Repos[0].Setup != command {
			t.Errorf("%q became %+v, %v", command, file, err)
		}
	}
}

func FuzzAddRepo(f *testing.F) {
	f.Add(whole)
	f.Add("repos:\n- name: a\n  path: /a\n  test: none\n")
	f.Add("repos:\n\n # x\n  \n" + agents)
	f.Fuzz(func(t *testing.T, content string) {
		path := write(t, "orch.yaml", content)
		before, err := parseFile(path, []byte(content))
		if err != nil {
			return
		}
		if addRepo(path, orchyaml.RepoEntry{Name: "new-one", Path: "/new-one", Test: "make"}) != nil {
			if read(t, path) != content {
				t.Error("refused, yet the file changed")
			}
			return
		}
		after, err := loadFile(path)
		if err != nil || len(after.Repos) != len(before.Repos)+1 {
			t.Errorf("it can't be read any more: %v", err)
		}
	})
}
