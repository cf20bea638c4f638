package config_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"orch/internal/config"
	"orch/internal/task"
)

// TestDocumentation holds the code, .env.example and docs/configuration.md together.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	type row struct{ name, value string }
	var wantEnv, wantDocs []row
	for _, v := range config.Variables() {
		if (v.Default == "") == (v.Shown == "") {
			t.Errorf("%s needs either a default or words for it", v.Name)
		}
		wantEnv = append(wantEnv, row{v.Name, v.Default})
		wantDocs = append(wantDocs, row{v.Name, v.Default + v.Shown})
	}
	find := func(path, pattern string) (rows []row) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1) {
			rows = append(rows, row{match[1], match[2]})
		}
		return rows
	}
	if got := find("../../.env.example", `(?m)^(ORCH_\w+)=(.*)$`); !slices.Equal(got, wantEnv) {
		t.Errorf(".env.example has\n%v\nand the code\n%v", got, wantEnv)
	}
	if got := find("../../docs/configuration.md", "(?m)^\\| `(ORCH_\\w+)` \\| (.*?) \\|"); !slices.Equal(got, wantDocs) {
		t.Errorf("docs/configuration.md has\n%v\nand the code\n%v", got, wantDocs)
	}
}

// TestPromptFields holds what a template may use here, what it is filled in with, and the documentation together.
func TestPromptFields(t *testing.T) {
	t.Parallel()
	checked, filled := reflect.TypeFor[config.PromptData](), reflect.TypeFor[task.PromptData]()
	if !checked.ConvertibleTo(filled) {
		t.Errorf("%v has other fields than %v", checked, filled)
	}
	docs := read(t, "../../docs/configuration.md")
	for field := range checked.Fields() {
		if !strings.Contains(docs, "`."+field.Name+"`") {
			t.Errorf("docs/configuration.md doesn't mention .%s", field.Name)
		}
	}
}

// TestDocumentedFile loads the example in docs/configuration.md, and looks for every key of it in the text.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()
	docs := read(t, "../../docs/configuration.md")
	_, rest, _ := strings.Cut(docs, "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	path := write(t, "orch.yaml", strings.ReplaceAll(example, "prompt: prompts/dev.md, ", ""))
	if _, err := config.LoadFile(path); err != nil {
		t.Error(err)
	}
	for _, key := range config.Keys() {
		if !strings.Contains(docs, "| `"+key+"` |") {
			t.Errorf("docs/configuration.md has no row for %s", key)
		}
	}
}
