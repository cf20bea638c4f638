package outcome

import (
	"fmt"
	"strings"
	"time"

	"orch/internal/process"
	"orch/internal/transcript"
)

const (
	// TailBytes is how much of the end of the output Judge should get.
	TailBytes = 16 << 10

	// SetupFailedCode tells, together with SetupFailedMark, that the program wasn't even started.
	SetupFailedCode = 125
	// SetupFailedMark begins the last line of a run in which the command that prepares the workspace failed.
	SetupFailedMark = transcript.SetupFailed
	// NotFoundMark begins the last line of a run in which there was no program to start after that.
	NotFoundMark = "orch: the agent's program can't be started"

	// Exit codes by which shells pass on what happened to the program they ran.
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // plus the signal's number

	maxDetail   = 2 << 10
	maxQuestion = 4000 // with a few words before it, it has room in a task's reason
)

// Judge says what the end of a run means. tail is the end of the output as it is; one of TailBytes or more may begin in
// the middle of a line. tz is the time zone in which the program writes times: that of its variable TZ; nil is UTC.
func Judge(f transcript.Format, exit process.Exit, said transcript.Said, tail []byte, now time.Time, tz *time.Location) Judgement {
	if tz == nil {
		tz = time.UTC
	}
	e := evidence{format: f, exit: exit, said: said, lines: plainLines(tail), then: now, tz: tz}
	if !exit.FinishedAt.IsZero() && exit.FinishedAt.Before(now) {
		e.then = exit.FinishedAt // what it said of a time to wait was said by then, however late it is judged
	}
	j := e.judge()
	j.ResetAt = bounded(j, now)
	j.Detail, j.Question = cut(j.Detail, maxDetail), cut(j.Question, maxQuestion)
	return j
}

// evidence is all that is known of an end.
type evidence struct {
	format transcript.Format
	exit   process.Exit
	said   transcript.Said
	lines  []string // the last plain ones
	then   time.Time
	tz     *time.Location
}

func (e evidence) judge() Judgement {
	outcome, ended := byReason(e.exit.Why)
	switch {
	case ended && outcome != Timeout && outcome != Stalled:
		return Judgement{Outcome: outcome, Detail: e.exit.Error}
	case ended && e.finished():
		return e.success() // it had nothing to do any more but to go
	case ended:
		if j, refused := e.standing(); refused {
			return j
		}
		j := Judgement{Outcome: outcome}
		if e.said.Error != nil {
			j.Detail = "the last thing it said: " + e.failure()
		}
		return j
	}
	if j, unstarted := e.notStarted(); unstarted {
		return j
	}
	switch e.format {
	case transcript.Claude, transcript.Codex, transcript.Gemini, transcript.OpenCode:
		return e.byEvents()
	case transcript.Aider, transcript.Command:
		return e.byText()
	default:
		return Judgement{Outcome: e.byExit()}
	}
}

// byReason is the outcome of a run that didn't end by itself.
func byReason(why process.Why) (Outcome, bool) {
	switch why {
	case process.WhyTimeout, process.WhyCeiling:
		return Timeout, true
	case process.WhyStalled:
		return Stalled, true
	case process.WhyCancelled:
		return Cancelled, true
	case process.WhyOrphaned, process.WhyHostDead:
		return Orphaned, true
	case process.WhyInterrupted:
		return Interrupted, true
	case process.WhyNeverStarted:
		return NeverStarted, true
	case process.WhyShimDead:
		return Crashed, true
	default:
		return "", false
	}
}

// notStarted recognizes a program that wasn't there. A shell that doesn't find what it is told to run has the same exit
// code, but is the work of the repository then: it must not stop the agent for everybody.
func (e evidence) notStarted() (Judgement, bool) {
	if e.exit.Code == nil {
		return Judgement{}, false
	}
	switch code := *e.exit.Code; {
	case code != codeNotExecutable && code != codeNotFound && code != SetupFailedCode:
	case code != SetupFailedCode && e.exit.Unstarted:
		return Judgement{Outcome: NotFound, Detail: e.exit.Error}, true
	case e.format == transcript.None:
	case code == SetupFailedCode && e.lastMarked(SetupFailedMark) != "":
		return Judgement{Outcome: SetupFailed, Detail: e.lastMarked(SetupFailedMark)}, true
	case code != SetupFailedCode && e.lastMarked(NotFoundMark) != "":
		return Judgement{Outcome: NotFound, Detail: e.lastMarked(NotFoundMark)}, true
	}
	return Judgement{}, false
}

// lastMarked is the last line, if it begins with the mark: who writes one goes right after.
func (e evidence) lastMarked(mark string) string {
	if len(e.lines) == 0 || !strings.HasPrefix(e.lines[len(e.lines)-1], mark) {
		return ""
	}
	return e.lines[len(e.lines)-1]
}

// byExit is the outcome of a run about which only its end tells.
func (e evidence) byExit() Outcome {
	switch {
	case e.exit.Signal != "":
		return signalled(e.exit.Signal)
	case e.exit.Code == nil:
		return Crashed
	case *e.exit.Code == 0:
		return OK
	default:
		return exited(*e.exit.Code)
	}
}

func exited(code int) Outcome {
	switch code {
	case codeSignal + 1, codeSignal + 2, codeSignal + 9, codeSignal + 15: // HUP, INT, KILL, TERM
		return Killed
	case codeSignal + 4, codeSignal + 6, codeSignal + 7, codeSignal + 8, codeSignal + 11: // ILL, ABRT, BUS, FPE, SEGV
		return Crashed
	default:
		return AgentFailed
	}
}

func signalled(name string) Outcome {
	switch name {
	case "SIGHUP", "SIGINT", "SIGKILL", "SIGTERM", "SIGQUIT", "SIGXCPU":
		return Killed
	default:
		return Crashed
	}
}

// howItEnded says it for people.
func (e evidence) howItEnded() string {
	switch {
	case e.exit.Signal != "":
		return "by " + e.exit.Signal
	case e.exit.Code == nil:
		return "without an exit code"
	default:
		return fmt.Sprintf("with exit code %d", *e.exit.Code)
	}
}

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
