package stage

import (
	"bytes"
	"fmt"
	"text/template"

	"orch/internal/task"
)

// PromptData is everything that a prompt's template may use.
type PromptData struct {
	Key        string
	Repo       string
	Title      string
	Body       string
	Branch     string // that the agent commits to
	BaseBranch string // that the change will land on
	Stage      string
	Round      int    // 1 at first, one more each time the task is sent back
	Rounds     int    // the cap on them
	Feedback   string // output of the gate that sent the task back, or a person's note; empty in the first round
}

// defaultPrompt says the same for each stage but what the stage is about.
const defaultPrompt = `You are working on task {{.Key}} of the repository {{.Repo}}, stage {{.Stage}}, round {{.Round}} of at most {{.Rounds}}.

# {{.Title}}
{{with .Body}}
{{.}}
{{end}}
# What to do now
{{if eq .Stage "analysis" -}}
Find out what the task really asks for. Write down the requirements, the facts in the code that matter, and open risks as documentation in the repository. Don't implement it yet.
{{- else if eq .Stage "architecture" -}}
Decide how the task is to be solved. Write the decision and its reasons down as documentation in the repository. Don't implement it yet.
{{- else if eq .Stage "review" -}}
Review what this branch changes compared with {{.BaseBranch}}. Correct what is wrong; leave alone what is right.
{{- else if eq .Stage "testing" -}}
Test what this branch changes compared with {{.BaseBranch}}. Add the tests that are missing and correct the faults that they find.
{{- else -}}
Make the change that the task asks for, with tests where the repository has tests.
{{- end}}

# Rules
- The current directory is a clone of the repository on branch {{.Branch}}. Work here and stay on this branch.
- Commit all your work on the current branch before you end, with a message that says why. What isn't committed doesn't count, and the workspace must be clean.
- Don't push and don't change {{.BaseBranch}}. The branch is brought up to date with it for you, unless you are told below to do it.
- Nobody answers while you work. If you can't go on without an answer, say what you need and end.
{{with .Feedback}}
# What went wrong before
The work on this branch so far didn't pass. Correct this first:

{{.}}
{{end}}`

// RenderPrompt fills in the template of a stage's prompt; an empty one is the built-in one.
func RenderPrompt(text string, data PromptData) ([]byte, error) {
	if text == "" {
		text = defaultPrompt
	}
	parsed, err := parsePrompt("prompt", text)
	if err != nil {
		return nil, fmt.Errorf("parse prompt: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render prompt: %w", err)
	}
	return out.Bytes(), nil
}

func parsePrompt(name, text string) (*template.Template, error) {
	return template.New(name).Option("missingkey=error").Parse(text)
}

func promptData(t task.Task, p task.Pipeline) PromptData {
	return PromptData{
		Key: t.Key, Repo: t.Repo, Title: t.Title, Body: t.Body, Branch: t.Branch, BaseBranch: t.BaseBranch,
		Stage: t.Stage, Round: t.Round, Rounds: p.Rounds(), Feedback: t.Feedback,
	}
}
