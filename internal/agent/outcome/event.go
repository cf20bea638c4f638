package outcome

import (
	"fmt"
	"strings"

	"orch/internal/transcript"
	"orch/internal/transcript/report"
)

// byEvents judges a program whose format has an event for the end.
func (e evidence) byEvents() Judgement {
	switch {
	case e.finished() && e.exit.Signal == "":
		return e.success()
	case e.said.Question != "" && e.said.End == transcript.EndNone:
		return e.asks(e.said.Question) // some say no more once they have asked
	}
	if e.said.Error != nil || e.said.Limit != nil {
		if j, refused := e.standing(); refused {
			return j
		}
	} else if j, refused := e.tail(); refused {
		return j
	}
	if j, known := e.geminiCode(); known {
		return j
	}
	j := Judgement{Outcome: AgentFailed, Detail: e.failure()}
	if end := e.byExit(); end != OK {
		j.Outcome = end
	}
	return j
}

// finished reports whether the program said that it has come to a good end. Some call an end good that an error led to.
func (e evidence) finished() bool { return e.said.End == transcript.EndOK && e.said.Error == nil }

// success judges a run that ended well in its own words, whatever its exit code is.
func (e evidence) success() Judgement {
	if j, said := e.reported(); said {
		return j
	}
	switch {
	case e.said.Report != nil && e.said.Report.Status == report.StatusOK:
		return Judgement{Outcome: OK} // it did without what it wasn't allowed
	case e.said.Question != "":
		return e.asks(e.said.Question)
	case len(e.said.Denied) > 0:
		return e.asks(fmt.Sprintf("The agent was not allowed to use %s. Allow it in the agent's settings or the args of its entry "+
			"in orch.yaml, or say how it can do without.", strings.Join(e.said.Denied, ", ")))
	case !e.said.Begun && e.said.Bad == 0: // else its answers may be in what couldn't be read
		return Judgement{Outcome: AgentFailed, Detail: "the agent ended before its model had answered anything"}
	case e.said.Summary == "" && e.format == transcript.Codex:
		return Judgement{Outcome: AgentFailed, Detail: "the agent's last message is empty"}
	default:
		return Judgement{Outcome: OK}
	}
}

// reported judges by orch's own line: what the agent says of its work, if that isn't just that all is well. The state of
// an account is no matter of the model's, only of a program that speaks for itself.
func (e evidence) reported() (Judgement, bool) {
	report := e.said.Report
	if report == nil {
		return Judgement{}, false
	}
	switch outcome := Outcome(report.Status); outcome {
	case NeedsInput:
		return e.asks(firstOf(report.Question, report.Summary, e.said.Question)), true
	case "failed":
		return Judgement{Outcome: AgentFailed, Detail: report.Summary}, true
	case Auth, Quota, RateLimited:
		if e.format == transcript.Command {
			return Judgement{Outcome: outcome, Detail: report.Summary, ResetAt: report.ResetAt}, true
		}
	default:
	}
	return Judgement{}, false
}

func (e evidence) asks(question string) Judgement {
	return Judgement{Outcome: NeedsInput, Question: question}
}

// failure is why a run without a good end counts as failed.
func (e evidence) failure() string {
	said := transcript.Error{}
	if e.said.Error != nil {
		said = *e.said.Error
	}
	if text := firstOf(said.Text, said.Kind, e.said.Subtype); text != "" {
		return text
	}
	text := fmt.Sprintf("it ended %s and without a result", e.howItEnded())
	if len(e.lines) > 0 {
		text += ": " + e.lines[len(e.lines)-1]
	}
	return text
}

// The exit codes of gemini: its own ones, and HTTP statuses as far as eight bits hold them.
const (
	geminiAuth                 = 41
	geminiUnauthorized         = 401 & 0xff
	geminiForbidden            = 403 & 0xff
	geminiTooManyRequests      = 429 & 0xff
	geminiUnavailable          = 503 & 0xff
	geminiInput, geminiSandbox = 42, 44
	geminiConfig, geminiTurns  = 52, 53
	geminiTool, geminiTrust    = 54, 55
)

func (e evidence) geminiCode() (Judgement, bool) {
	if e.format != transcript.Gemini || e.exit.Code == nil {
		return Judgement{}, false
	}
	j := Judgement{Detail: e.failure()}
	switch *e.exit.Code {
	case geminiAuth, geminiUnauthorized, geminiForbidden:
		j.Outcome = Auth
	case geminiTooManyRequests, geminiUnavailable:
		j.Outcome = RateLimited
	case geminiInput, geminiSandbox, geminiConfig, geminiTurns, geminiTool, geminiTrust:
		j.Outcome = AgentFailed
	default:
		return Judgement{}, false
	}
	return j, true
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
