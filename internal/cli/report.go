package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"orch/api"
)

const (
	purposeAgent     = "agent"
	waitingForPerson = "person_lands"
	shownOutput      = 15 // last lines of a failed gate's output
)

// plain reports a task's way as lines for a person, with a progress line on a terminal.
type plain struct {
	screen  *screen
	started time.Time

	mu    sync.Mutex
	doing string
	stop  chan struct{}
	done  chan struct{}
}

// newPlain starts the clock of the progress line; close ends it.
func newPlain(s *screen) *plain {
	p := &plain{screen: s, started: time.Now(), doing: "starting", stop: make(chan struct{}), done: make(chan struct{})}
	go p.tick()
	return p
}

func (p *plain) tick() {
	defer close(p.done)
	if !p.screen.interactive() {
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
			p.screen.progress(fmt.Sprintf("%c %s · %s", frames[i%len(frames)], doing, elapsed(time.Since(p.started))))
		}
	}
}

func (p *plain) close() {
	close(p.stop)
	<-p.done
	p.screen.close()
}

func (p *plain) now(d api.TaskDetail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = doing(d)
}

// doing says in few words what is going on with a task.
func doing(d api.TaskDetail) string {
	what := "waiting for a free slot"
	switch {
	case atRest(d.Task):
		what = "cleaning up"
	case d.Task.WaitingFor != nil && *d.Task.WaitingFor != "":
		what = "waiting for " + strings.ReplaceAll(*d.Task.WaitingFor, "_", " ")
	case d.Job != nil && d.Job.Phase != nil && *d.Job.Phase != "":
		what = phaseWords(*d.Job.Phase)
	case d.Job != nil && d.Job.State == api.JobRunning:
		what = "starting"
	}
	return fmt.Sprintf("%s %s, try %d of %d · %s", d.Task.Key, d.Task.Stage, d.Task.Round, d.Task.MaxRounds, what)
}

func phaseWords(phase string) string {
	switch phase {
	case "preparing":
		return "preparing the workspace"
	case "following":
		return "the agent works"
	case "gates":
		return "gates are checked"
	case "testing":
		return "the merged commit is tested"
	default:
		return phase
	}
}

func (p *plain) say(format string, args ...any) {
	p.screen.line("%6s  %s", elapsed(time.Since(p.started)), fmt.Sprintf(format, args...))
}

func (p *plain) output(text string, lines int) {
	if strings.TrimSpace(text) == "" {
		return
	}
	for _, line := range indent(text, lines) {
		p.screen.line("        %s", line)
	}
}

func (p *plain) runStarted(r api.Run) {
	name := r.Agent
	if name == "" {
		name = "agent"
	}
	p.say("%s works on %s, try %d", name, r.Stage, r.Round)
}

func (p *plain) runLog(text string) { p.screen.line("            │ %s", printable(text)) }

func (p *plain) runEnded(e api.RunEnd) {
	if e.Ended != nil && *e.Ended == "exited" && e.ExitCode != nil && *e.ExitCode == 0 {
		p.say("agent finished")
		return
	}
	p.say("agent ended: %s", howEnded(e))
}

func howEnded(e api.RunEnd) string {
	switch {
	case e.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *e.ExitCode)
	case e.Signal != nil && *e.Signal != "":
		return "signal " + *e.Signal
	case e.Ended != nil:
		return *e.Ended
	default:
		return "unknown"
	}
}

func (p *plain) event(e api.TaskEvent) {
	f := factsOf(e)
	reason := printable(firstLine(e.Reason))
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
		p.say("landed %s", shortSHA(f.Commit))
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

func gateName(f facts) string {
	if f.Command != "" {
		return f.Gate + " `" + printable(f.Command) + "`"
	}
	return f.Gate
}

func reusedWords(f facts) string {
	if f.Reused {
		return " (same tree, tested before)"
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// silent reports nothing.
type silent struct{}

func (silent) event(api.TaskEvent) {}
func (silent) runStarted(api.Run)  {}
func (silent) runLog(string)       {}
func (silent) runEnded(api.RunEnd) {}
func (silent) now(api.TaskDetail)  {}

// jsonLines reports the same as one JSON object a line, for programs.
type jsonLines struct{ out *json.Encoder }

func newJSONLines(out io.Writer) *jsonLines { return &jsonLines{json.NewEncoder(out)} }

func (j *jsonLines) write(kind string, value any) {
	_ = j.out.Encode(map[string]any{"type": kind, kind: value}) //nolint:errchkjson // a reader that went away ends nothing
}

func (j *jsonLines) event(e api.TaskEvent)   { j.write("event", e) }
func (j *jsonLines) runStarted(r api.Run)    { j.write("run", r) }
func (j *jsonLines) runLog(text string)      { j.write("log", text) }
func (j *jsonLines) runEnded(e api.RunEnd)   { j.write("run_end", e) }
func (j *jsonLines) now(api.TaskDetail)      {}
func (j *jsonLines) result(d api.TaskDetail) { j.write("task", d.Task) }
