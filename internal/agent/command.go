package agent

import (
	"fmt"
	"strings"
)

// CommandTemplate is a preset command as configured: either a list of arguments, or a line for the shell.
type CommandTemplate struct {
	Argv  []string
	Shell string
}

// Command makes the arguments to run.
func Command(template CommandTemplate) ([]string, error) {
	line := strings.TrimSpace(template.Shell)
	switch {
	case len(template.Argv) > 0 && line != "":
		return nil, fmt.Errorf("%w: a command is a list or a line, not both", ErrBadRequest)
	case line != "":
		return []string{"sh", "-c", template.Shell}, nil
	case len(template.Argv) == 0 || template.Argv[0] == "":
		return nil, fmt.Errorf("%w: empty command", ErrBadRequest)
	default:
		return append([]string(nil), template.Argv...), nil
	}
}
