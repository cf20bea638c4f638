package words

import (
	"fmt"

	"orch/api"
	"orch/internal/cli/terminal"
)

// Held names what a pause holds back.
func Held(scope api.PauseScope, name string) string {
	if scope == api.PauseRepo {
		return "repository " + name
	}
	return "lane " + name
}

// Resume is the command that ends a pause.
func Resume(p api.Pause) string { return fmt.Sprintf("orch resume --%s %s", p.Scope, p.Name) }

// Paused says what is paused, since when, by whom and why, and how it goes on.
func Paused(p api.Pause) string {
	return fmt.Sprintf("%s was paused %s ago by %s: %s (%#q lets it go on)",
		Held(p.Scope, p.Name), Age(p.Since), p.Actor, terminal.Printable(p.Reason), Resume(p))
}
