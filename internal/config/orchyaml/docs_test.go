package orchyaml_test

import (
	"reflect"
	"strings"
	"testing"

	"orch/internal/config/orchyaml"
	"orch/internal/stage/prompt"
)

const docs = "../../../docs/configuration.md"

// TestPromptFields holds what a template may use and the documentation together.
func TestPromptFields(t *testing.T) {
	t.Parallel()
	text := read(t, docs)
	for field := range reflect.TypeFor[prompt.Data]().Fields() {
		if !strings.Contains(text, "`."+field.Name+"`") {
			t.Errorf("docs/configuration.md doesn't mention .%s", field.Name)
		}
	}
}

// TestDocumentedFile loads the example in docs/configuration.md, and looks for every key of it in the text.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()
	text := read(t, docs)
	_, rest, _ := strings.Cut(text, "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	path := write(t, "orch.yaml", strings.ReplaceAll(example, "prompt: prompts/dev.md, ", ""))
	if _, err := loadFile(path); err != nil {
		t.Error(err)
	}
	for _, key := range orchyaml.Keys() {
		if !strings.Contains(text, "| `"+key+"` |") {
			t.Errorf("docs/configuration.md has no row for %s", key)
		}
	}
}
