package transcript

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"orch/internal/transcript/foreign"
	"orch/internal/transcript/line"
	"orch/internal/transcript/report"
)

// Parser keeps what a program has said, from its output. It is for one goroutine at a time.
type Parser struct {
	state *state
	lines *line.Scanner // nil: nothing is heard
}

// state is what a format works on.
type state struct {
	said    Said
	open    tools
	changed bool
}

// format is what differs from program to program.
type format interface {
	// wanted is a value of the type that an event is decoded into; nil when lines of JSON are no events.
	wanted() any
	// event is given what is wanted of one line of JSON, or nothing when the line wasn't. It is false when the line is to
	// be counted as bad.
	event(raw []byte) bool
	// line is given any other line, without control characters.
	line(text string)
}

// Lines that orch itself writes between the output of a repository's setup command and that of the agent. What the former
// printed, which runs code of the branch, is no word of the agent.
const (
	SetupDone   = "orch: the setup command is done"
	SetupFailed = "orch: the setup command failed" // begins the line
)

// New makes a parser; with a format that is None or unknown it hears nothing.
func New(f Format) *Parser {
	s := &state{}
	p := &Parser{state: s}
	heard := reader(f, s)
	if heard == nil {
		return p
	}
	event := func(raw []byte) {
		s.said.Lines++
		if !heard.event(raw) {
			s.said.Bad++
		}
	}
	plain := func(raw []byte) {
		s.said.Lines++
		switch text := foreign.Line(raw); {
		case text == SetupDone, strings.HasPrefix(text, SetupFailed):
			*s = state{said: Said{Lines: s.said.Lines}, changed: true}
			heard = reader(f, s)
		case text != "":
			heard.line(text)
		}
	}
	p.lines = line.New(heard.wanted(), event, plain)
	return p
}

func reader(f Format, s *state) format {
	switch f {
	case Claude:
		return &claude{state: s}
	case Codex:
		return &codex{state: s}
	case Gemini:
		return &gemini{state: s}
	case OpenCode:
		return &opencode{state: s}
	case Aider:
		return newAider(s)
	case Command:
		return &command{state: s}
	default:
		return nil
	}
}

// Write reads on. It never fails.
func (p *Parser) Write(b []byte) (int, error) {
	if p.lines != nil {
		p.lines.Take(b)
	}
	return len(b), nil
}

// Finish takes what came after the last newline for a line: nothing more comes.
func (p *Parser) Finish() {
	if p.lines != nil {
		p.lines.End()
	}
}

// Said is what was said until now. It shares nothing with the parser.
func (p *Parser) Said() Said {
	said := p.state.said
	said.Denied = slices.Clone(said.Denied)
	return said
}

// Changed reports whether anything but the count of lines has changed since it was asked last.
func (p *Parser) Changed() bool {
	changed := p.state.changed
	p.state.changed = false
	return changed
}

// ToolsOpen is how many tools the program waits for. It costs nothing.
func (p *Parser) ToolsOpen() int { return p.state.said.ToolsOpen }

// Read reads a whole transcript, for a run whose shim left none of its own.
func Read(f Format, r io.Reader) (Said, error) {
	p := New(f)
	_, err := io.Copy(p, r)
	p.Finish()
	if err != nil {
		return p.Said(), fmt.Errorf("read transcript: %w", err)
	}
	return p.Said(), nil
}

// fails notes an error that stands until progress.
func (s *state) fails(e Error) {
	e.Kind, e.Text = foreign.Text(e.Kind, foreign.Short), foreign.Text(e.Text, foreign.Long)
	s.said.Error = &e
}

// progress notes that whatever went wrong before has been overcome.
func (s *state) progress() {
	s.said.Error, s.said.Limit = nil, nil
	s.said.SessionLost, s.said.TooLong = false, false
}

// session notes the session's id; the model's name only where an event tells it.
func (s *state) session(id, model string) {
	if id != "" {
		s.said.SessionID = foreign.Text(id, foreign.Short)
	}
	if model != "" {
		s.said.Model = foreign.Text(model, foreign.Short)
	}
}

// toolBegins notes a tool in flight; without an id it can't be known when it has ended.
func (s *state) toolBegins(id, name string) {
	s.said.Tool = foreign.Text(name, foreign.Short)
	if id != "" {
		s.open.add(id)
	}
	s.said.ToolsOpen = s.open.count()
}

func (s *state) toolEnds(id string) {
	s.open.remove(id)
	s.said.ToolsOpen = s.open.count()
}

func (s *state) noTools() {
	s.open = tools{}
	s.said.ToolsOpen = 0
}

// denied notes a tool that wasn't allowed, once.
func (s *state) denied(tool string) {
	tool = foreign.Text(tool, foreign.Short)
	if tool != "" && len(s.said.Denied) < maxDenied && !slices.Contains(s.said.Denied, tool) {
		s.said.Denied = append(s.said.Denied, tool)
	}
}

// concludes notes the text of a final message, and orch's line if that is its last.
func (s *state) concludes(message string) {
	s.said.Report = nil
	if own, rest, ok := report.Concluding(message); ok {
		s.said.Report, message = own, rest
	}
	s.said.Summary = foreign.Text(message, foreign.Long)
	if s.said.Report != nil && s.said.Report.Summary != "" {
		s.said.Summary = s.said.Report.Summary
	}
}
