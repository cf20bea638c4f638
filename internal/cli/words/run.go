package words

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
)

// Run is what there is to know of a run, in lines: what it was and how it stands, and what was said of it.
func Run(r api.Run) []string {
	who := r.Purpose
	if r.Agent != "" {
		who += " " + terminal.Printable(r.Agent)
		if r.Preset != "" {
			who += " (" + r.Preset + ")"
		}
	}
	how := cmp.Or(orZero(r.Outcome), orZero(r.Ended), string(r.State))
	if orZero(r.ExitCode) != 0 || r.Signal != nil {
		how += " (" + Ended(api.RunEnd{ExitCode: r.ExitCode, Signal: r.Signal, Ended: r.Ended}) + ")"
	}
	lines := []string{fmt.Sprintf("run %s: %s, %s%s", r.ID, who, how, runUsage(r))}
	if r.ResumedFrom != nil {
		lines = append(lines, fmt.Sprintf("  goes on with the session of run %s", *r.ResumedFrom))
	}
	if r.SessionID != nil {
		lines = append(lines, "  session "+terminal.Printable(*r.SessionID))
	}
	for _, said := range []struct{ what, text string }{{"because", r.Detail}, {"error", r.Error}, {"asks", r.Question}, {"says", r.Summary}} {
		if text := terminal.Printable(FirstLine(strings.TrimSpace(said.text))); text != "" {
			lines = append(lines, "  "+said.what+": "+text)
		}
	}
	if r.ResetAt != nil {
		lines = append(lines, "  its limit is over at "+Clock(*r.ResetAt))
	}
	if r.RemovedAt != nil {
		lines = append(lines, "  its output was deleted, "+Age(*r.RemovedAt)+" ago")
	}
	if r.State == api.RunRunning && r.Pid != nil {
		lines = append(lines, fmt.Sprintf("  pid %d under shim %d on %s", *r.Pid, orZero(r.ShimPid), terminal.Printable(r.Host)))
	}
	if r.UserMs != nil {
		lines = append(lines, fmt.Sprintf("  took %s of processor time and up to %d MB of memory",
			Elapsed(time.Duration(*r.UserMs+orZero(r.SystemMs))*time.Millisecond), orZero(r.MaxRssBytes)>>20))
	}
	if r.Here != nil {
		lines = append(lines, runHere(*r.Here)...)
	}
	return lines
}

// runHere is what a run was made with, in lines.
func runHere(h api.RunHere) []string {
	lines := []string{"  started " + commandLine(h.Argv), "  in " + terminal.Printable(h.WorkingDirectory)}
	var limits []string
	for _, limit := range []struct {
		seconds *float64
		of      string
	}{{h.TimeoutS, "in all"}, {h.StallTimeoutS, "without output"}, {h.ToolStallTimeoutS, "without output of a tool"}} {
		if limit.seconds != nil {
			limits = append(limits, Elapsed(time.Duration(*limit.seconds*float64(time.Second)))+" "+limit.of)
		}
	}
	if len(limits) > 0 {
		lines = append(lines, "  may take "+strings.Join(limits, ", "))
	}
	if h.FirstPort != nil {
		lines = append(lines, fmt.Sprintf("  has the ports %d to %d", *h.FirstPort, *h.FirstPort+h.Ports-1))
	}
	log := fmt.Sprintf("  has written %d bytes", h.LogEnd)
	if h.LogFirst > 0 {
		log += fmt.Sprintf(", the first %d of them are gone", h.LogFirst)
	}
	return append(lines, log+", in "+terminal.Printable(h.Directory))
}

// mostArgs bounds a command line that is shown, in bytes.
const mostArgs = 300

// commandLine is an argv as a person would type it, if it isn't too long.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		if words[i] = arg; arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	line := terminal.Printable(strings.ReplaceAll(strings.Join(words, " "), "\n", " "))
	if len(line) > mostArgs {
		line = strings.ToValidUTF8(line[:mostArgs], "") + " …"
	}
	return line
}

// plain is what needs no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_[]"

// following is the phase of a job while its run goes on.
const following = "following"

// soFar is what a job's run does and has used, to be put behind its phase; empty when nobody says.
func soFar(j api.Job) string {
	var said struct {
		Tool string `json:"tool"`
		api.Run
	}
	if orZero(j.Phase) != following || j.Progress == nil || json.Unmarshal(*j.Progress, &said) != nil {
		return ""
	}
	text := ""
	if tool := terminal.Printable(FirstLine(said.Tool)); tool != "" {
		text = " with " + tool
	}
	return text + runUsage(said.Run)
}

// runUsage is what a run has used, as far as it says.
func runUsage(r api.Run) string {
	var b strings.Builder
	if r.Turns != nil {
		fmt.Fprintf(&b, ", %d turns", *r.Turns)
	}
	if r.CostUsd != nil {
		b.WriteString(", " + USD(*r.CostUsd, nil))
	}
	if n := orZero(r.InputTokens) + orZero(r.OutputTokens); n > 0 {
		b.WriteString(", " + tokens(n, nil))
	}
	return b.String()
}
