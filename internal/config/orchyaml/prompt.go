package orchyaml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PromptCheck says what is wrong with the template of a prompt. name is what it calls the template in its answer.
type PromptCheck func(name, text string) error

// loadPrompt reads a template and has it checked, so that a mistake shows at start and not when an agent should.
func (r *resolver) loadPrompt(file string) (string, error) {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, file)
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
	if err := r.check(filepath.Base(file), text); err != nil {
		return "", err
	}
	return text, nil
}
