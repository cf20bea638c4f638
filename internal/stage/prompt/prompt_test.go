package prompt

import (
	"strings"
	"testing"

	"orch/internal/task/flow"
)

func TestRender(t *testing.T) {
	t.Parallel()
	data := Data{Key: "demo-1", Title: "Title", Branch: "orch/demo-1", BaseBranch: "main", Round: 2, Rounds: 3, Feedback: "red\noutput"}
	for _, stage := range []string{flow.Analysis, flow.Architecture, flow.Development, flow.Review, flow.Testing, "polish"} {
		data.Stage = stage
		prompt, err := Render("", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"demo-1", "# Title", "stage " + stage, "round 2 of at most 3", "orch/demo-1", "Commit all your work", "red\noutput"} {
			if !strings.Contains(string(prompt), part) {
				t.Errorf("%s: no %q in\n%s", stage, part, prompt)
			}
		}
	}
	own, err := Render("{{.Key}}: {{.Title}} {{.Feedback}}", data)
	if err != nil || string(own) != "demo-1: Title red\noutput" {
		t.Errorf("%s, %v", own, err)
	}
}

func TestGoOn(t *testing.T) {
	t.Parallel()
	data := Data{Key: "demo-1", Stage: "review", Branch: "orch/demo-1", Round: 2, Rounds: 3, Feedback: "red\noutput"}
	for outcome, why := range map[string]string{
		"needs_input": "said to that is below", "timeout": "as long as it may", "stalled": "nothing had come", "quota": "a limit",
		"interrupted": "was stopped", "crashed": "crashed", "agent_failed": "ended before",
	} {
		for kept, where := range map[bool]string{true: "as you left it", false: "was made anew"} {
			prompt, err := GoOn(data, Earlier{Outcome: outcome, Kept: kept})
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{why, where, "demo-1", "stage review, round 2 of at most 3", "red\noutput", `{"orch":{"status":"needs_input"`} {
				if !strings.Contains(string(prompt), part) {
					t.Errorf("%s: no %q in\n%s", outcome, part, prompt)
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"plain", ""},
		{"{{.Key}} {{.Stage}} {{.Round}} {{.Rounds}} {{.Feedback}} {{.BaseBranch}}", ""},
		{"{{with .Feedback}}{{.}} {{$.Stage}}{{end}}", ""},
		{"{{define \"x\"}}{{.Key}}{{end}}{{template \"x\" .}}", ""},
		{"{{if eq .Round 3}}{{printf \"%s\" (print .Title)}}{{end}}", ""},
		{"{{.Kay}}", "there is no .Kay; known: .Key .Repo"},
		{"a\n{{if eq .Round 7}}{{.Nope}}{{end}}", "dev.md:2:"},
		{"{{if .Feedback}}{{else}}{{with .Stage}}{{else}}{{.Nope}}{{end}}{{end}}", "there is no .Nope"},
		{"{{range .Feedback}}{{$.Nope}}{{end}}", "there is no .Nope"},
		{"{{if false}}{{(print .Nope)}}{{end}}", "there is no .Nope"},
		{"{{.Title.Length}}", "there is no .Title.Length"},
		{"{{.Title", "unclosed action"},
		{"{{nope .Stage}}", "not defined"},
		{"{{template \"x\"}}", "x"},
		{"{{lt .Stage 1}}", "incompatible types"},
		{"{{range 100000}}{{range 100000}}0123456789{{end}}{{end}}", "grows beyond"},
		{"{{define \"x\"}}{{template \"x\" .}}{{end}}{{template \"x\" .}}", "exceeded maximum template depth"},
		{"{{with .Title}}{{.Nope}}{{end}}", "can't evaluate field Nope"},
		{"{{if .Feedback}}{{with .Title}}{{.Nope}}{{end}}{{end}}", "can't evaluate field Nope"},
		{"{{define \"x\"}}{{.Nope}}{{end}}{{if .Feedback}}{{template \"x\" .}}{{end}}", "can't evaluate field Nope"},
	} {
		err := Check("dev.md", test.text)
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\nwant %q, got %v", test.text, test.want, err)
		}
	}
}

func TestCheck_OfAPipeline(t *testing.T) {
	t.Parallel()
	for prompt, problem := range map[string]string{
		"{{.Nothing}}":                       "there is no .Nothing",
		"{{if}}":                             "missing value for if",
		"{{if .Feedback}}{{.Secret}}{{end}}": "there is no .Secret",
	} {
		err := flow.Pipeline{Name: "x", Stages: []flow.Stage{{Name: "a", Prompt: prompt}}}.Validate(Check)
		if err == nil || !strings.Contains(err.Error(), `pipeline "x": stage "a": prompt: `) || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
}
