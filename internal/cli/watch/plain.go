package watch

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
	"orch/internal/cli/words"
)

// shownOutput is how many last lines of a failed gate's output are shown.
const shownOutput = 15

// Plain reports a task's way as lines for a person, with a progress line on a terminal.
type Plain struct {
	screen  *terminal.Screen
	started time.Time

	mu    sync.Mutex
	doing string
	// held is what the task waited for at the last look, told what was said of that.
	held, told string
	stop       chan struct{}
	done       chan struct{}
}

// NewPlain starts the clock of the progress line; Close ends it.
func NewPlain(s *terminal.Screen) *Plain {
	p := &Plain{screen: s, started: time.Now(), doing: "starting", stop: make(chan struct{}), done: make(chan struct{})}
	go p.tick()
	return p
}

func (p *Plain) tick() {
	defer close(p.done)
	if !p.screen.Interactive() {
		return
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for i := 0; ; i++ {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			doing := p.doing
			p.mu.Unlock()
			p.screen.Progress(fmt.Sprintf("%c %s · %s", frames[i%len(frames)], doing, words.Elapsed(time.Since(p.started))))
		}
	}
}

// Close ends the clock and takes the progress line away.
func (p *Plain) Close() {
	close(p.stop)
	<-p.done
	p.screen.Close()
}

// Now implements Reporter.
func (p *Plain) Now(d api.TaskDetail) {
	p.set(doing(d))
	held := heldBy(d)
	if held != "" && held == p.held && held != p.told { // by now what came before it was shown
		p.say("waits: %s", held)
		p.told = held
	}
	p.held = held
}

// heldBy says what keeps a task's job back, that may be for hours; empty when nothing does. It is the same each time.
func heldBy(d api.TaskDetail) string {
	j := d.Job
	if j == nil || j.State != api.JobQueued || atRest(d.Task) {
		return ""
	}
	if d.Task.NeedsYou && d.Task.Reason != nil {
		return "for you: " + terminal.Printable(words.FirstLine(*d.Task.Reason)) + ". Then it goes on by itself."
	}
	var held []string
	for _, p := range d.Paused {
		held = append(held, fmt.Sprintf("%s is paused: %s (%#q)", words.Held(p.Scope, p.Name), words.PausedFor(p), words.Resume(p)))
	}
	if len(held) > 0 {
		return strings.Join(held, "; ")
	}
	if waits := words.WaitsFor(j, d.Paused); waits != "" {
		return waits + " It is looked at again at " + words.Clock(j.RunAt) + "."
	}
	return ""
}

// set says what the progress line tells from now on.
func (p *Plain) set(doing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = doing
}

// doing says in few words what is going on with a task.
func doing(d api.TaskDetail) string {
	what := "waiting for a free slot"
	switch {
	case atRest(d.Task):
		what = "cleaning up"
	case d.Task.NeedsYou && d.Task.State == api.TaskActive:
		what = words.State(d.Task)
	case d.Task.State == api.TaskWaiting && d.Task.WaitingFor != nil:
		what = "waiting for " + strings.ReplaceAll(*d.Task.WaitingFor, "_", " ")
	case heldBy(d) != "":
		what = "waits"
	case d.Job != nil && d.Job.Phase != nil && *d.Job.Phase != "":
		what = words.Phase(*d.Job.Phase)
	case d.Job != nil && d.Job.State == api.JobRunning:
		what = "starting"
	}
	return fmt.Sprintf("%s %s, try %d of %d · %s", d.Task.Key, d.Task.Stage, d.Task.Round, d.Task.MaxRounds, what)
}

func (p *Plain) say(format string, args ...any) {
	p.screen.Line("%6s  %s", words.Elapsed(time.Since(p.started)), fmt.Sprintf(format, args...))
}

func (p *Plain) output(text string, lines int) {
	if strings.TrimSpace(text) == "" {
		return
	}
	for _, line := range indent(text, lines) {
		p.screen.Line("        %s", line)
	}
}

// RunStarted implements Reporter.
func (p *Plain) RunStarted(r api.Run) {
	name := r.Agent
	if name == "" {
		name = "agent"
	}
	p.say("%s works on %s, try %d", name, r.Stage, r.Round)
	p.set(fmt.Sprintf("%s %s, try %d · %s", r.Task, r.Stage, r.Round, words.Phase("following")))
}

// RunLog implements Reporter.
func (p *Plain) RunLog(text string) { p.screen.Line("            │ %s", terminal.Printable(text)) }

// RunEnded implements Reporter.
func (p *Plain) RunEnded(e api.RunEnd) {
	p.set(words.Phase("gates"))
	if e.Ended != nil && *e.Ended == "exited" && e.ExitCode != nil && *e.ExitCode == 0 {
		p.say("agent finished")
		return
	}
	p.say("agent ended: %s", words.Ended(e))
}

// Event implements Reporter.
func (p *Plain) Event(e api.TaskEvent) {
	f := words.FactsOf(e)
	reason := terminal.Printable(words.FirstLine(e.Reason))
	switch e.Kind {
	case "created":
		p.say("task added")
	case "stage_started", "run_finished", "waiting", "retired", "done", "blocked", "cancelled":
		// told by the log, by the progress line or by the closing words
	case "gate_passed":
		p.say("gate %s: passed%s", gateName(f), reusedWords(f))
	case "gate_failed":
		p.say("gate %s: failed: %s", gateName(f), reason)
		p.output(f.Output, shownOutput)
	case "advanced":
		p.say("on to %s", f.To)
	case "returned":
		p.say("back to %s for try %d: %s", f.To, f.Round, reason)
		p.output(f.Output, shownOutput)
	case "landed":
		p.say("landed %s", words.ShortSHA(f.Commit))
	case "salvaged":
		p.say("work kept at %s", f.Ref)
	default:
		if reason == "" {
			p.say("%s", strings.ReplaceAll(e.Kind, "_", " "))
		} else {
			p.say("%s: %s", strings.ReplaceAll(e.Kind, "_", " "), reason)
		}
	}
}

func gateName(f words.Facts) string {
	if f.Command != "" {
		return f.Gate + " `" + terminal.Printable(f.Command) + "`"
	}
	return f.Gate
}

func reusedWords(f words.Facts) string {
	if f.Reused {
		return " (same tree, tested before)"
	}
	return ""
}

// indent puts each line of a text behind a bar, at most the last n lines.
func indent(text string, n int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("… %d lines before", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	for i, line := range lines {
		lines[i] = "    │ " + terminal.Printable(line)
	}
	return lines
}
