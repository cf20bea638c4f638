// Package prompt writes what agents are told. The text of a stage is a text/template over Data; Check refuses before a run
// what Render could only fail at later. An agent whose session goes on isn't told everything again: only why it was cut
// off, in which state its workspace is, and what was said meanwhile (GoOn).
package prompt

import (
	"bytes"
	"fmt"
	"text/template"
)

// Data is everything that a prompt's template may use.
type Data struct {
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
- Nobody answers while you work. ` + askRule + `
{{with .Feedback}}
# What was said of the work so far
Begin with this:

{{.}}
{{end}}`

// askRule is how an agent asks a person, whatever program it is.
const askRule = `If you can't go on without an answer, end with this single line as the last of your message: {"orch":{"status":"needs_input","question":"what you need to know"}}`

// goOnPrompt is for an agent that still knows all that it was told before, and in which state it left things.
const goOnPrompt = `This is about task {{.Key}} of the repository {{.Repo}}, stage {{.Stage}}, round {{.Round}} of at most {{.Rounds}}, which you were working on. {{.Why}}

{{if .Kept -}}
The current directory is as you left it.
{{- else -}}
The current directory was made anew since: it is branch {{.Branch}} as it was committed last. What you hadn't committed isn't there; look what is missing before you go on.
{{- end}}
{{with .Feedback}}
# What was said of the work so far
{{.}}
{{end}}
Go on where you stopped. What you were told at the start still holds: commit all your work on branch {{.Branch}} before you end. {{.Ask}}
`

// Render fills in the template of a stage's prompt; an empty one is the built-in one.
func Render(text string, data Data) ([]byte, error) {
	if text == "" {
		text = defaultPrompt
	}
	parsed, err := compile("prompt", text)
	if err != nil {
		return nil, fmt.Errorf("parse prompt: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render prompt: %w", err)
	}
	return out.Bytes(), nil
}

// Earlier is the run whose session an agent goes on with.
type Earlier struct {
	Outcome string
	Kept    bool // the workspace is as it was left
}

// GoOn is what an agent is told whose session goes on.
func GoOn(data Data, earlier Earlier) ([]byte, error) {
	parsed, err := compile("go on", goOnPrompt)
	if err != nil {
		return nil, fmt.Errorf("parse prompt: %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, struct {
		Data
		Why, Ask string
		Kept     bool
	}{data, cutOff(earlier.Outcome), askRule, earlier.Kept})
	if err != nil {
		return nil, fmt.Errorf("render prompt: %w", err)
	}
	return out.Bytes(), nil
}

// cutOff tells an agent how its run before ended.
func cutOff(outcome string) string {
	switch outcome {
	case "needs_input":
		return "You asked something; what is said to that is below."
	case "timeout":
		return "You were ended because it had taken as long as it may."
	case "stalled":
		return "You were ended because nothing had come from you for too long."
	case "quota", "rate_limited":
		return "You were stopped by a limit of the model's provider, which is over now."
	case "interrupted", "orphaned":
		return "You were ended because the machine or the program that started you was stopped."
	case "killed", "crashed":
		return "Your program was killed or has crashed."
	default:
		return "Your program ended before the work was done."
	}
}

func compile(name, text string) (*template.Template, error) {
	return template.New(name).Option("missingkey=error").Parse(text)
}
