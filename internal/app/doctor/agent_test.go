package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/stage/prompt"
)

// examined is what the doctor says of the only agent of an orch.yaml, and where that is.
func examined(t *testing.T, content string) (found []Finding, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orch.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := orchyaml.LoadFile(file, prompt.Check)
	if err != nil {
		t.Fatal(err)
	}
	return examineAgent(&config.Config{Data: config.Data{File: file, Root: filepath.Dir(file)}}, f.Agents[0]), file
}

func TestAgent(t *testing.T) {
	t.Parallel()
	found, file := examined(t, orchyaml.Template(""))
	if want := (Finding{"agent coder", Failed, "no agent program is set", "edit agents.coder.command in " + file}); !slices.Equal(found, []Finding{want}) {
		t.Errorf("placeholder: %+v", found)
	}
	found, _ = examined(t, orchyaml.Template("sh -c true"))
	if len(found) != 1 || found[0].Status != OK || !strings.HasSuffix(found[0].Detail, "/sh") {
		t.Errorf("sh: %+v", found)
	}
	found, _ = examined(t, orchyaml.Template("no-such-program"))
	if len(found) != 1 || found[0].Status != Failed || !strings.Contains(found[0].Detail, "no-such-program") {
		t.Errorf("missing: %+v", found)
	}
}

func TestAgentOfAKnownProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content string
		want    []string // status and a part of each finding
	}{
		"all is there": {
			"{preset: codex, command: sh, env: [PATH], set: {OPENAI_API_KEY: hunter2}, max_tokens: 1000}", []string{"ok /sh"},
		},
		"no program": {
			"{preset: codex, command: /no/such/codex, set: {OPENAI_API_KEY: hunter2}, max_tokens: 1}", []string{`failed there is no program "/no/such/codex"`},
		},
		"no login": {
			"{preset: claude, command: sh}", []string{"ok /sh", "warning nothing is there that would let it log in: neither a variable (ANTHROPIC_API_KEY, "},
		},
		"a login that is seeded": {
			"{preset: claude, command: sh, home: [{from: /etc/hosts, to: .claude/.credentials.json}]}", []string{"ok /sh"},
		},
		"what is passed on isn't there": {
			"{preset: aider, command: sh, env: [PATH, NO_SUCH_VARIABLE], set: {OPENAI_API_KEY: hunter2}, home: [{from: /no/such/file, to: x}, {from: /etc, to: y}]}",
			[]string{"ok /sh", "warning its env names NO_SUCH_VARIABLE, which isn't set here", "warning its home begins with /no/such/file", "warning its home begins with /etc,"},
		},
		"no price": {
			"{preset: codex, command: sh, set: {OPENAI_API_KEY: hunter2}}", []string{"ok /sh", "warning codex doesn't say what a run costs"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, _ := examined(t, "agents:\n  coder: "+test.content+"\n")
			if len(found) != len(test.want) {
				t.Fatalf("%+v", found)
			}
			for n, f := range found {
				if !strings.Contains(f.Status+" "+f.Detail, said(test.want[n])) || !strings.HasPrefix(test.want[n], f.Status) || (f.Status == OK) == (f.Remedy != "") {
					t.Errorf("%+v isn't %q", f, test.want[n])
				}
				if strings.Contains(f.Detail+f.Remedy, "hunter2") {
					t.Errorf("it shows: %+v", f)
				}
			}
		})
	}
}

// said is what a finding says behind its status.
func said(want string) string {
	_, rest, _ := strings.Cut(want, " ")
	return rest
}
