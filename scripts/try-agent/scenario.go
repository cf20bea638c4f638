package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/api"
	"orch/internal/testagent/stub"
)

// agent is a program to try.
type agent struct {
	preset, pack, version string
	program               string
}

// agentCalled finds what PRESET or PRESET@VERSION stands for. The versions are those that docs/agents.md speaks of.
func agentCalled(word string) (agent, error) {
	name, version, _ := strings.Cut(word, "@")
	known := map[string]agent{
		"claude":   {pack: "@anthropic-ai/claude-code", version: "2.1.332"},
		"codex":    {pack: "@openai/codex", version: "0.171.0"},
		"gemini":   {pack: "@google/gemini-cli", version: "0.61.0"},
		"opencode": {pack: "opencode-ai", version: "1.18.33"},
	}
	a, ok := known[name]
	if !ok {
		return agent{}, fmt.Errorf("no agent is called %q: there are claude, codex, gemini and opencode", name)
	}
	a.preset = name
	if version != "" {
		a.version = version
	}
	return a, nil
}

const key = "sk-stub-0123456789"

// geminiSettings is the file that tells gemini how it is signed in: with a server of one's own it doesn't guess.
const geminiSettings = "gemini-settings.json"

// entry is the agent in orch.yaml, told to talk to the stub at url.
func (a agent) entry(name, url, dir string, s scenario) string {
	lines := []string{"preset: " + a.preset, "command: [" + a.program + "]", "timeout: 10m", "stall_timeout: " + s.stall.String()}
	set := map[string]string{}
	switch a.preset {
	case "claude":
		set["ANTHROPIC_API_KEY"], set["ANTHROPIC_BASE_URL"], set["CLAUDE_CODE_MAX_RETRIES"] = key, url, "1"
		set["IS_SANDBOX"] = "1" // it may be root that tries
	case "codex":
		set["STUB_KEY"] = key
		lines = append(lines, "model: stub", fmt.Sprintf(`args: [-c, 'model_provider="stub"', -c, 'model_providers.stub={name="stub",`+
			`base_url="%s/v1",env_key="STUB_KEY",wire_api="responses",supports_websockets=false}']`, url))
	case "gemini":
		set["GEMINI_API_KEY"], set["GOOGLE_GEMINI_BASE_URL"] = key, url
		lines = append(lines, fmt.Sprintf("home: [{from: %s, to: .gemini/settings.json}]", filepath.Join(dir, geminiSettings)))
	case "opencode":
		set["OPENCODE_CONFIG_CONTENT"] = fmt.Sprintf(`{"autoupdate":false,"share":"disabled","model":"stub/m","small_model":"stub/m",`+
			`"provider":{"stub":{"npm":"@ai-sdk/openai-compatible","name":"stub","options":{"baseURL":"%s/v1","apiKey":"%s"},`+
			`"models":{"m":{"name":"m","tool_call":true,"limit":{"context":100000,"output":8000},"cost":{"input":3,"output":15}}}}}}`, url, key)
		lines = append(lines, "model: stub/m")
	}
	lines = append(lines, "set:")
	for _, name := range slices.Sorted(maps.Keys(set)) {
		lines = append(lines, "  "+name+": '"+set[name]+"'")
	}
	return "  " + name + ":\n    " + strings.Join(lines, "\n    ") + "\n"
}

// scenario is one thing that can happen to an agent.
type scenario struct {
	name   string
	script stub.Script
	// stall is the limit of silence.
	stall time.Duration
	// lands means that the change lands in the end; otherwise the task is given up after the first run.
	lands bool
}

func scenarios(preset string) []scenario {
	edit := stub.Script{
		Command: `printf 'hello\n' > hello.txt && git add hello.txt && git commit -q -m 'Say hello'`, Says: "I said hello in hello.txt.",
	}
	refused := func(r stub.Refusal) stub.Script {
		script := edit
		script.Refusal = &r
		return script
	}
	// The reset of a limit in the words of each provider. A pause is never shorter than a minute.
	const untilReset = 70 * time.Second
	limit := stub.Refusal{Status: http.StatusTooManyRequests, For: untilReset}
	switch preset {
	case "codex":
		limit.Body = `{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus",` +
			`"resets_at":{{epoch}},"resets_in_seconds":{{seconds}}}}`
	case "claude":
		limit.Header = map[string]string{
			"anthropic-ratelimit-unified-status": "rejected", "anthropic-ratelimit-unified-reset": "{{epoch}}",
			"anthropic-ratelimit-unified-representative-claim": "five_hour",
		}
		limit.Body = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit."}}`
	case "gemini":
		limit.Body = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota. Please retry in {{seconds}}s.",` +
			`"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{{seconds}}s"}]}}`
	default:
		limit.Header = map[string]string{"Retry-After": "7200"}
		limit.Body = `{"error":{"code":"1308","message":"Usage limit reached for 5 hour. Your limit will reset at {{utc}}"}}`
	}
	const short, long = 45 * time.Second, 3 * time.Minute
	asleep := short
	if preset == "gemini" {
		asleep = long // it waits for such a reset by itself
	}
	return []scenario{
		{name: "edit", script: edit, stall: long, lands: true},
		{name: "401", stall: long, script: refused(stub.Refusal{
			Status: http.StatusUnauthorized,
			Body:   `{"error":{"code":"invalid_api_key","type":"authentication_error","message":"Incorrect API key provided"}}`,
		})},
		{name: "429", script: refused(limit), stall: asleep, lands: true},
		{name: "500", stall: long, script: refused(stub.Refusal{
			Status: http.StatusInternalServerError, Body: `{"error":{"type":"api_error","message":"Internal server error"}}`,
		})},
		{name: "hang", script: stub.Script{Hangs: true}, stall: short},
	}
}

// trial is one agent in one scenario.
type trial struct {
	name     string
	agent    agent
	scenario scenario
	server   *stub.Server
}

// attempt has orch run one task, and says what came of it.
func (t *try) attempt(ctx context.Context, trial trial) (string, error) {
	repo := filepath.Join(t.dir, "repos", trial.name+".git")
	if err := t.makeRepository(ctx, repo); err != nil {
		return "", err
	}
	began := time.Now()
	run := t.command(ctx, filepath.Join(t.dir, "orch"), "run", "--repo", repo, "--agent", trial.name,
		"--title", "Say hello in hello.txt", "--test", "grep -q hello hello.txt")
	output, err := os.Create(filepath.Join(t.dir, trial.name+".log"))
	if err != nil {
		return "", fmt.Errorf("log: %w", err)
	}
	defer func() { _ = output.Close() }()
	run.Stdout, run.Stderr = output, output
	if err := run.Start(); err != nil {
		return "", fmt.Errorf("orch run: %w", err)
	}
	over := make(chan struct{})
	go func() {
		_ = run.Wait() // a task that doesn't land is no error here
		close(over)
	}()
	detail, err := t.follow(ctx, filepath.Base(strings.TrimSuffix(repo, ".git")), trial.scenario.lands, over)
	if err != nil {
		return "", err
	}
	return t.row(ctx, trial, detail, time.Since(began))
}

// follow waits for the end of the task, or of its first run when it won't land.
func (t *try) follow(ctx context.Context, repo string, lands bool, over <-chan struct{}) (api.TaskDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		list, err := t.client.ListTasks(ctx, api.ListTasksParams{Repo: &repo})
		if err == nil && len(list.Items) > 0 {
			key := list.Items[0].Key
			detail, err := t.client.GetTask(ctx, key)
			if err != nil {
				return detail, err
			}
			select {
			case <-over:
				return t.client.GetTask(ctx, key)
			default:
			}
			if first := len(detail.Runs) - 1; !lands && first >= 0 && detail.Runs[first].State == api.RunFinished && settled(detail) {
				if _, err := t.client.CancelTask(ctx, key); err == nil {
					<-over
				}
				return detail, nil
			}
		}
		select {
		case <-ctx.Done():
			return api.TaskDetail{}, fmt.Errorf("it doesn't end: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// settled reports whether orch has drawn its conclusion from the last run.
func settled(d api.TaskDetail) bool {
	return d.Job == nil || d.Job.State != api.JobRunning || len(d.Runs) > 1
}

func (t *try) row(ctx context.Context, trial trial, d api.TaskDetail, took time.Duration) (string, error) {
	agents, err := t.client.ListAgents(ctx)
	if err != nil {
		return "", err
	}
	paused := "-"
	for _, a := range agents.Items {
		if a.Name == trial.name && a.Paused != nil {
			paused = a.Paused.Reason
			if a.Paused.Code != nil {
				paused = *a.Paused.Code
			}
		}
	}
	var runs []string
	for _, run := range slices.Backward(d.Runs) {
		if run.Purpose == "agent" {
			runs = append(runs, describe(run))
		}
	}
	return fmt.Sprintf("| %s | %s | %s | task %s | paused: %s | %d requests | %.0f s |", trial.agent.preset, trial.scenario.name,
		strings.Join(runs, "; then "), d.Task.State, paused, len(trial.server.Requests()), took.Seconds()), nil
}

func describe(r api.Run) string {
	text := "-"
	if r.Outcome != nil {
		text = *r.Outcome
	}
	if r.ExitCode != nil {
		text += fmt.Sprintf(" (exit %d)", *r.ExitCode)
	} else if r.Signal != nil {
		text += " (" + *r.Signal + ")"
	}
	if r.InputTokens != nil && r.OutputTokens != nil && *r.InputTokens > 0 {
		text += fmt.Sprintf(", %d+%d tokens", *r.InputTokens, *r.OutputTokens)
	}
	if r.CostUsd != nil {
		text += fmt.Sprintf(", %.4f USD", *r.CostUsd)
	}
	if r.Turns != nil {
		text += fmt.Sprintf(", %d turns", *r.Turns)
	}
	return text
}

// makeRepository makes a bare repository with one commit.
func (t *try) makeRepository(ctx context.Context, repo string) error {
	work := repo + ".work"
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", work},
		{"-C", work, "-c", "user.name=try", "-c", "user.email=try@localhost", "commit", "-q", "--allow-empty", "-m", "Begin"},
		{"clone", "-q", "--bare", work, repo},
	} {
		if err := t.command(ctx, "git", args...).Run(); err != nil {
			return fmt.Errorf("git %s: %w", args[0], err)
		}
	}
	return os.RemoveAll(work)
}
