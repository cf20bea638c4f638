// Package demo makes the small repository and the scripted agent that `orch demo` runs on.
package demo

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed files/*.sh
var files embed.FS

// Title and Body are what the demo's task asks for.
const (
	Title = "Add a farewell"
	Body  = "Add farewell.sh, which says goodbye to the name it is given, the way greet.sh greets it."
	// Test is the command that the demo's gate runs.
	Test = "sh test.sh"
	// Branch is the branch that the demo's change lands on.
	Branch = "main"
)

// Place says where the demo's files are.
type Place struct {
	Repository string // a normal repository, Branch checked out
	Agent      string // the scripted agent, a shell script
}

// Make writes a new repository's files and the agent below dir, beside those of earlier demos. The caller turns
// Repository into a git repository: this package runs no programs.
func Make(dir string) (Place, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a person is told to look here
		return Place{}, fmt.Errorf("make the demo's directory: %w", err)
	}
	base, err := next(dir)
	if err != nil {
		return Place{}, err
	}
	place := Place{Repository: filepath.Join(base, "greeter"), Agent: filepath.Join(base, "agent.sh")}
	if err := os.Mkdir(place.Repository, 0o755); err != nil { //nolint:gosec // as above
		return Place{}, fmt.Errorf("make the demo's repository: %w", err)
	}
	for name, to := range map[string]string{
		"greet.sh": filepath.Join(place.Repository, "greet.sh"),
		"test.sh":  filepath.Join(place.Repository, "test.sh"),
		"agent.sh": place.Agent,
	} {
		content, err := files.ReadFile("files/" + name)
		if err != nil {
			return Place{}, fmt.Errorf("read the demo's %s: %w", name, err)
		}
		if err := os.WriteFile(to, content, 0o755); err != nil { //nolint:gosec // programs
			return Place{}, fmt.Errorf("write the demo's %s: %w", name, err)
		}
	}
	return place, nil
}

// next makes the first free numbered directory below dir; two demos at once get one each.
func next(dir string) (string, error) {
	for n := 1; ; n++ {
		base := filepath.Join(dir, strconv.Itoa(n))
		err := os.Mkdir(base, 0o755) //nolint:gosec // a person is told to look here
		if err == nil {
			return base, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make the demo's directory: %w", err)
		}
	}
}
