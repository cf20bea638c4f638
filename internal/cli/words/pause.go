package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
)

// Held names what a pause holds back.
func Held(scope api.PauseScope, name string) string {
	if scope == api.PauseRepo {
		return "repository " + name
	}
	return string(scope) + " " + name
}

// Resume is the command that ends a pause.
func Resume(p api.Pause) string { return fmt.Sprintf("orch resume --%s %s", p.Scope, p.Name) }

// PausedFor says what an agent met that orch itself has paused, and until when it is.
func PausedFor(p api.Pause) string {
	met := map[string]string{
		"auth": "it can't log in", "not_found": "its program can't be run", "quota": "its quota is used up", "rate_limited": "it was asked to slow down",
	}[orZero(p.Code)]
	text := cmp.Or(met, strings.ReplaceAll(orZero(p.Code), "_", " "))
	if reason := terminal.Printable(FirstLine(p.Reason)); reason != "" && reason != orZero(p.Code) { // of /queue it is the code
		text = reason
	}
	if p.Until == nil {
		return text
	}
	return text + ", until " + Clock(*p.Until)
}

// Clock is a time of today, or a day and a time.
func Clock(at time.Time) string {
	local, now := at.Local(), time.Now()
	if local.YearDay() == now.YearDay() && local.Year() == now.Year() {
		return local.Format("15:04:05")
	}
	return local.Format("2006-01-02 15:04:05")
}

// Paused says what is paused, since when, by whom and why, and how it goes on.
func Paused(p api.Pause) string {
	if p.Code != nil {
		return fmt.Sprintf("%s was paused %s ago by %s: %s (%#q lets it go on at once)", Held(p.Scope, p.Name), Age(p.Since), p.Actor, PausedFor(p), Resume(p))
	}
	return fmt.Sprintf("%s was paused %s ago by %s: %s (%#q lets it go on)",
		Held(p.Scope, p.Name), Age(p.Since), p.Actor, terminal.Printable(p.Reason), Resume(p))
}
