package orchyaml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	pipeline := func(stages ...string) string {
		return agents + "pipelines:\n  p:\n    - " + strings.Join(stages, "\n    - ") + "\n"
	}
	const develop, deploy = "{stage: development, agent: coder}", "{stage: deploy, gates: [branch_mergeable]}"
	for name, test := range map[string]struct{ content, want string }{
		"syntax":               {"repos:\n  - name: [\n", "f.yaml:2: "},
		"tab":                  {"repos:\n\t- name: a\n", "f.yaml:2: "},
		"not a mapping":        {"- a\n", "f.yaml:1: "},
		"unknown key":          {"repos:\n  - name: a\n    pth: /x\n", `f.yaml:3: unknown field "pth"`},
		"unknown top key":      {"\nrepo: []\n", "f.yaml:2: "},
		"key twice":            {"agents: {}\nrepos: []\nagents: {}\n", "f.yaml:3: "},
		"two documents":        {"repos: []\n---\nrepos: []\n", "f.yaml:3: a second document"},
		"type":                 {"repos:\n  - name: {a: b}\n", "f.yaml:2: "},
		"repo name":            {agents + "repos:\n  - {name: De mo, path: x, test: none}\n", "f.yaml:3: repository 1 needs a name"},
		"no name":              {agents + "repos:\n  - {path: x, test: none}\n", "f.yaml:3: repository 1 needs a name"},
		"repo twice":           {agents + "repos:\n  - {name: a, path: x, test: none}\n  - name: a\n    path: y\n    test: none\n", "f.yaml:4: repository a was defined on line 3"},
		"same place":           {agents + "repos:\n  - {name: a, path: x, test: none}\n  - name: b\n    path: ./x\n    test: none\n", "f.yaml:5: repositories a and b are the same"},
		"no path":              {agents + "repos:\n  - {name: a, test: none}\n", "f.yaml:3: repository a needs a path"},
		"home":                 {agents + "repos:\n  - {name: a, path: ~/x, test: none}\n", "f.yaml:3: repository a: ~ has"},
		"url":                  {agents + "repos:\n  - {name: a, path: 'https://x/y', test: none}\n", "not a URL"},
		"no test":              {agents + "repos:\n  - name: a\n    path: x\n", "f.yaml:3: repository a has no test: give the command that decides whether a change may land, or say `test: none`"},
		"forge":                {agents + "repos:\n  - name: a\n    path: x\n    test: none\n    forge: svn\n", `f.yaml:6: forge: "svn" isn't known here; allowed: local`},
		"land":                 {agents + "repos:\n  - {name: a, path: x, test: none, land: yes please}\n", "allowed: auto, manual"},
		"no batch":             {agents + "repos:\n  - name: a\n    path: x\n    test: none\n    batch: 0\n", `f.yaml:6: repository a: batch must be from 1 to 64, and it says "0"`},
		"large batch":          {agents + "repos:\n  - {name: a, path: x, test: none, batch: 65}\n", "batch must be from 1 to 64"},
		"half a batch":         {agents + "repos:\n  - {name: a, path: x, test: none, batch: 1.5}\n", `batch must be from 1 to 64, and it says "1.5"`},
		"batch in words":       {agents + "repos:\n  - {name: a, path: x, test: none, batch: many}\n", `batch must be from 1 to 64, and it says "many"`},
		"pipeline":             {agents + "repos:\n  - name: a\n    path: x\n    test: none\n    pipeline: nope\n", `f.yaml:6: repository a: no pipeline is called "nope"`},
		"no agent":             {"repos:\n  - {name: a, path: x, test: none}\n", "f.yaml:2: repository a: the built-in pipeline needs an agent"},
		"which agent":          {"agents:\n  a: {preset: command, command: x}\n  b: {preset: command, command: x}\nrepos:\n  - {name: a, path: x, test: none}\n", "there are several"},
		"gate without test":    {pipeline("{stage: development, agent: coder, gates: [command]}") + "repos:\n  - {name: a, path: x, test: none, pipeline: p}\n", "f.yaml:6: repository a: stage development of pipeline p"},
		"agent name":           {"agents:\n  Co der: {preset: command, command: x}\n", "f.yaml:2: agent \"Co der\""},
		"preset":               {"agents:\n  a:\n    preset: cloud\n    command: x\n", `f.yaml:3: preset: "cloud" isn't known here; allowed: aider, claude, codex, command, gemini, opencode`},
		"no preset":            {"agents:\n  a:\n    command: x\n", "f.yaml:2: agent a has no preset; allowed: aider, claude, codex, command, gemini, opencode"},
		"no command":           {"agents:\n  a: {preset: command}\n", "f.yaml:2: agent a needs a command"},
		"empty argv":           {"agents:\n  a: {preset: command, command: []}\n", "agent a needs a command"},
		"number in argv":       {"agents:\n  a: {preset: command, command: [x, 1]}\n", "quote numbers"},
		"timeout":              {"agents:\n  a:\n    preset: command\n    command: x\n    timeout: 45\n", `f.yaml:5: timeout: "45" is no duration`},
		"negative":             {"agents:\n  a: {preset: command, command: x, stall_timeout: -5m}\n", `stall_timeout: "-5m" is no duration`},
		"variable":             {"agents:\n  a:\n    preset: command\n    command: x\n    env:\n      - OK\n      - NOT OK\n", `f.yaml:7: agent a: "NOT OK" is no name`},
		"own variable":         {"agents:\n  a: {preset: command, command: x, set: {ORCH_API_TOKEN: x}}\n", "ORCH_API_TOKEN is orch's own"},
		"pipeline name":        {agents + "pipelines:\n  P!: [" + develop + "]\n", "f.yaml:3: pipeline \"P!\""},
		"empty pipeline":       {agents + "pipelines:\n  p: []\n", "f.yaml:3: pipeline p has no stages"},
		"stage":                {pipeline("{stage: dancing, agent: coder}"), `f.yaml:4: stage "dancing" isn't known; allowed: analysis, architecture, development, review, testing, deploy`},
		"stage twice":          {pipeline(develop, develop), "f.yaml:5: stage development is in pipeline p twice"},
		"after deploy":         {pipeline(develop, deploy, "{stage: testing, gates: [command]}"), "f.yaml:6: stage testing comes after deploy"},
		"agent":                {pipeline("{stage: development, agent: codre}"), `f.yaml:4: no agent is called "codre" (defined: coder)`},
		"deploy with agent":    {pipeline(develop, "{stage: deploy, agent: coder, gates: [branch_mergeable]}"), "f.yaml:5: deploy lands"},
		"deploy without gate":  {pipeline(develop, "{stage: deploy}"), "f.yaml:5: deploy takes the gates [branch_mergeable]"},
		"deploy, other gate":   {pipeline(develop, "{stage: deploy, gates: [commits, branch_mergeable]}"), "f.yaml:5: deploy takes the gates [branch_mergeable]"},
		"method":               {pipeline(develop, "{stage: deploy, gates: [branch_mergeable], method: octopus}"), "allowed: fast-forward, merge, rebase, squash"},
		"method elsewhere":     {pipeline("{stage: development, agent: coder, method: fast-forward}"), "belongs to deploy"},
		"mergeable elsewhere":  {pipeline("{stage: development, agent: coder, gates: [branch_mergeable]}"), "belongs to deploy"},
		"nothing to do":        {pipeline(develop, "{stage: review}"), "f.yaml:5: stage review has neither an agent nor a gate"},
		"prompt without agent": {pipeline(develop, "{stage: review, gates: [command], prompt: x.md}"), "no agent to read it"},
		"unknown on_fail":      {pipeline(develop, "{stage: review, agent: coder, on_fail: analysis}"), `f.yaml:5: on_fail: pipeline p has no stage "analysis"`},
		"cycle":                {pipeline("{stage: development, agent: coder, on_fail: review}", "{stage: review, agent: coder}"), "f.yaml:4: on_fail: review comes later than development"},
		"on_fail to no agent":  {pipeline(develop, "{stage: testing, gates: [command]}", "{stage: deploy, gates: [branch_mergeable], on_fail: testing}"), "no agent works in testing"},
		"gate":                 {pipeline("{stage: development, agent: coder, gates: [commits, compile]}"), `f.yaml:4: gate "compile" isn't known; allowed: branch_mergeable, command, commits`},
		"gate on its line":     {pipeline("stage: development\n      agent: coder\n      gates:\n        - commits\n        - nope"), "f.yaml:8: gate \"nope\""},
		"gate of other shape":  {pipeline("{stage: development, agent: coder, gates: [{run: x}]}"), "a gate is a name"},
		"gate with more":       {pipeline("{stage: development, agent: coder, gates: [{command: x, env: y}]}"), "a gate is a name"},
		"gate timeout":         {pipeline("{stage: development, agent: coder, gates: [{command: x, timeout: soon}]}"), `timeout: "soon" is no duration`},
		"gate number":          {pipeline("{stage: development, agent: coder, gates: [5]}"), "a gate is a name"},
		"gate twice":           {pipeline("{stage: development, agent: coder, gates: [commits, commits]}"), "gate commits is there twice"},
		"no prompt file":       {pipeline("{stage: development, agent: coder, prompt: nowhere.md}"), "f.yaml:4: prompt of stage development: there is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFile("f.yaml", []byte(test.content))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q in %v", test.want, err)
			}
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parseFile("f.yaml", []byte("repos:\n  - {name: a, path: x}\n  - {name: B}\nagents:\n  c: {preset: x}\npipelines:\n  p: []\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, line := range []string{"f.yaml:2:", "f.yaml:3:", "f.yaml:5:", "f.yaml:7:"} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("%s isn't in %v", line, err)
		}
	}
}

// TestErrorsDontQuote keeps the values of `set:` out of error messages.
func TestErrorsDontQuote(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"x: [", "x: 1", "timeout: {}", "\tx: 1"} {
		_, err := parseFile("f.yaml", []byte("agents:\n  a:\n    set: {KEY: hunter2}\n    "+rest+"\n"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", rest, err)
		}
	}
}

// TestPrompts asks for the place in both files. What a template may hold is the renderer's business.
func TestPrompts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"plain", ""},
		{"{{.Key}} {{with .Feedback}}{{.}} {{$.Stage}}{{end}}", ""},
		{" \n", "is empty"},
		{"{{.Kay}}", "there is no .Kay; known: .Key .Repo"},
		{"a\n{{if eq .Round 7}}{{.Nope}}{{end}}", "dev.md:2:"},
		{"{{.Title", "unclosed action"},
	} {
		path := write(t, "orch.yaml", agents+"pipelines: {p: [{stage: development, agent: coder, prompt: dev.md}]}\n")
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "dev.md"), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadFile(path)
		if (test.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "orch.yaml:2: prompt of stage development: ")) {
			t.Errorf("%s\nwant %q, got %v", test.text, test.want, err)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(whole)
	f.Add("a: &a [*a]\n")
	f.Add("repos: &r\n  - <<: *r\n")
	f.Add("agents: {a: !!binary x, ? {}: y}\n")
	f.Add("repos:\n- {name: a, path: x, test: |\n   a\n   b\n}")
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(t.TempDir(), "orch.yaml")
		file, err := parseFile(path, []byte(content))
		if err != nil || file == nil {
			return
		}
		for _, repo := range file.Repos {
			if _, err := file.ResolvePipeline(repo, ""); err != nil {
				t.Errorf("accepted, yet %v", err)
			}
		}
	})
}
