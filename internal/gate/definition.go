package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Names of the checks that the registry knows.
const (
	Commits = "commits"
	Command = "command"
)

// ErrUnknown says that no check has the asked name.
var ErrUnknown = errors.New("unknown gate")

// Known returns the names of all checks, sorted.
func Known() []string { return []string{Command, Commits} }

// Definition says what one gate of a stage asks for. It comes from the operator's configuration, never from the branch
// that is judged.
type Definition struct {
	Name    string        // one of Known
	Command string        // for command: given to `sh -c`
	Paths   []string      // for checks on files; none of today's checks reads it
	Timeout time.Duration // for command: how long it may run; zero = Config.Timeout
}

// Validate says what is wrong with the definition, or nil.
func (d Definition) Validate() error {
	switch d.Name {
	case Commits:
		if d.Command != "" {
			return fmt.Errorf("gate %s takes no command", d.Name)
		}
	case Command:
		if strings.TrimSpace(d.Command) == "" {
			return fmt.Errorf("gate %s needs a command", d.Name)
		}
		if d.Timeout < 0 {
			return fmt.Errorf("gate %s: timeout %s is negative", d.Name, d.Timeout)
		}
	default:
		return fmt.Errorf("%w %q: known are %s", ErrUnknown, d.Name, strings.Join(Known(), ", "))
	}
	return nil
}

// Hash names the definition by its content: two definitions that could judge differently never share it.
func (d Definition) Hash() string {
	h := sha256.New()
	parts := append([]string{d.Name, d.Command, strconv.FormatInt(int64(d.Timeout), 10)}, d.Paths...)
	for _, part := range parts {
		// The length in front keeps ("ab", "c") and ("a", "bc") apart.
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Key names the run that judges commit by this definition.
func (d Definition) Key(commit string) string {
	return "gate:" + d.Name + ":" + d.Hash() + ":" + commit
}
