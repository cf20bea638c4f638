package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

const maxPrompt = 1 << 20

// PromptData is everything a prompt template may use. Whoever fills templates in has the same fields.
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
	Feedback   string // why it was sent back: the output of the gate that failed; empty in the first round
}

// loadPrompt reads a template and tries it, so that a mistake shows at start and not when an agent should.
func loadPrompt(dir, file string) (string, error) {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, file)
	}
	content, err := readLimited(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		return "", err
	}
	text := string(content)
	if strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	tmpl, err := template.New(filepath.Base(file)).Parse(text)
	if err != nil {
		return "", err
	}
	if err := checkFields(tmpl); err != nil {
		return "", err
	}
	first := PromptData{
		Key: "demo-1", Repo: "demo", Title: "title", Body: "body", Branch: "orch/demo-1", BaseBranch: "main",
		Stage: stageDevelopment, Round: 1, Rounds: 3,
	}
	second := first
	second.Round, second.Feedback = 2, "feedback"
	for _, sample := range []PromptData{first, second} {
		if err := tmpl.Execute(&limitedBuilder{}, sample); err != nil {
			return "", err
		}
	}
	return text, nil
}

// limitedBuilder refuses a text that no agent could read, before a template that repeats itself fills the memory.
type limitedBuilder struct{ strings.Builder }

var errPromptTooLong = fmt.Errorf("it grows beyond %d bytes", maxPrompt)

// Write implements io.Writer.
func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPrompt {
		return 0, errPromptTooLong
	}
	return b.Builder.Write(p)
}
