package line

import "bytes"

const (
	// maxLine bounds a line, maxKept what is kept of one that is JSON, maxPlain of any other.
	maxLine  = 10_000_000
	maxKept  = 256 << 10
	maxPlain = 64 << 10
	// headKept and tailKept are how much of a long string is kept of its beginning and, at least, of its end.
	headKept = 8 << 10
	tailKept = 16 << 10
	// maxLiteral bounds a number, maxKey a key that is looked at.
	maxLiteral = 64
	maxKey     = 256
)

// Scanner cuts output into lines. It is a machine that takes byte by byte, as lines come in pieces.
type Scanner struct {
	want  *shape // nil: no line is JSON
	event func(raw []byte)
	plain func(raw []byte)

	step   func(*Scanner, byte)
	line   lineKind
	size   int    // of the line so far
	kept   []byte // of the line
	frames []frame
	next   *shape // of the value to come; nil when nobody looks at it
	key    []byte // of the value to come
	from   int    // where the key or literal begins in kept
	skip   skipping
	str    cutting
}

// lineKind is what the line has been so far.
type lineKind int

const (
	lineBlank lineKind = iota
	linePlain
	lineOpen
	lineEvent
	lineBroken
)

// frame is an object or array that is open.
type frame struct {
	shape *shape
	array bool
	used  bool // something in it was kept
}

// skipping is where in a value that nobody looks at the scanner is.
type skipping struct {
	depth           int
	quoted, escaped bool
}

// New makes a scanner. Each object that begins a line is given to event, reduced to what a value of want's type can hold (a type
// that holds itself has no end here), and any other line to plain; blank lines to nobody. Of a line that is broken event gets
// nothing. With a want of nil no line is taken for JSON. What is given is the scanner's own, and gone after the call.
func New(want any, event, plain func(raw []byte)) *Scanner {
	return &Scanner{want: shapeOf(want), event: event, plain: plain}
}

// Take takes more output.
func (s *Scanner) Take(b []byte) {
	for {
		at := bytes.IndexByte(b, '\n')
		if at < 0 {
			s.feed(b)
			return
		}
		s.feed(b[:at])
		s.End()
		b = b[at+1:]
	}
}

func (s *Scanner) feed(part []byte) {
	if s.step == nil {
		s.step = (*Scanner).start
	}
	room := maxLine - s.size
	for _, c := range part[:min(len(part), room)] {
		s.step(s, c)
		if len(s.kept) > maxKept {
			s.broken()
		}
	}
	s.size += len(part)
	if len(part) > room {
		s.size = maxLine
		s.broken()
	}
}

// End hands the line over, as a newline does, and makes ready for the next. An object that wasn't closed is a broken line.
func (s *Scanner) End() {
	switch s.line {
	case lineBlank:
	case linePlain:
		s.plain(s.kept)
	case lineEvent:
		s.event(s.kept)
	case lineOpen, lineBroken:
		s.event(nil)
	}
	s.step, s.line, s.size = (*Scanner).start, lineBlank, 0
	s.clear()
}

func (s *Scanner) clear() {
	s.kept, s.frames, s.str = s.kept[:0], s.frames[:0], cutting{}
	if cap(s.kept) > maxPlain { // one long line holds no memory for good
		s.kept = nil
	}
}

// start is where a line begins.
func (s *Scanner) start(c byte) {
	switch {
	case blank(c):
	case c == '{' && s.want != nil:
		s.line, s.next = lineOpen, s.want
		s.value(c)
	default:
		s.line, s.step = linePlain, (*Scanner).words
		s.words(c)
	}
}

// words is a line that is no JSON.
func (s *Scanner) words(c byte) {
	if len(s.kept) < maxPlain {
		s.kept = append(s.kept, c)
	}
}

func (s *Scanner) broken() {
	s.line, s.step = lineBroken, func(*Scanner, byte) {}
	s.clear()
}

// value is where a value begins.
func (s *Scanner) value(c byte) {
	switch {
	case blank(c):
	case c == ']' && s.array():
		s.closes(c)
	case s.next == nil, c == '{' && !s.next.object(), c == '[' && s.array():
		s.skip, s.step = skipping{}, (*Scanner).skipped
		s.skipped(c)
	case c == '{':
		s.opens(c, frame{shape: s.next}, (*Scanner).keyOrEnd)
	case c == '[':
		s.opens(c, frame{shape: s.next, array: true}, (*Scanner).value)
	case c == '"':
		s.keep(c)
		s.str, s.step = cutting{from: len(s.kept)}, (*Scanner).text
	default:
		s.keep(c)
		s.from, s.step = len(s.kept), (*Scanner).literal
	}
}

func (s *Scanner) array() bool { return len(s.frames) > 0 && s.frames[len(s.frames)-1].array }

// keep writes the first byte of a value that is looked at, with what must stand before it.
func (s *Scanner) keep(c byte) {
	if len(s.frames) > 0 {
		top := &s.frames[len(s.frames)-1]
		if top.used {
			s.kept = append(s.kept, ',')
		}
		top.used = true
		if !top.array {
			s.kept = append(append(append(s.kept, '"'), s.key...), '"', ':')
		}
	}
	s.kept = append(s.kept, c)
}

func (s *Scanner) opens(c byte, f frame, step func(*Scanner, byte)) {
	s.keep(c)
	s.frames, s.step = append(s.frames, f), step
}

func (s *Scanner) closes(c byte) {
	s.kept = append(s.kept, c)
	s.frames = s.frames[:len(s.frames)-1]
	s.step = (*Scanner).after
	if len(s.frames) == 0 {
		s.line, s.step = lineEvent, (*Scanner).closed
	}
}

// after is where a value has ended.
func (s *Scanner) after(c byte) {
	array := s.array()
	switch {
	case blank(c):
	case c == ',' && array:
		s.next, s.step = s.frames[len(s.frames)-1].shape, (*Scanner).value
	case c == ',':
		s.step = (*Scanner).keyOrEnd
	case c == ']' && array, c == '}' && !array:
		s.closes(c)
	default:
		s.broken()
	}
}

// closed is where the object has ended that was the line. Two programs that write at once may leave two in a line.
func (s *Scanner) closed(c byte) {
	switch {
	case blank(c):
	case c == '{':
		s.event(s.kept)
		s.clear()
		s.line, s.next = lineOpen, s.want
		s.value(c)
	default:
		s.broken()
	}
}

// keyOrEnd is where a key begins, in an object.
func (s *Scanner) keyOrEnd(c byte) {
	switch {
	case blank(c):
	case c == '"':
		s.key, s.skip, s.step = s.key[:0], skipping{}, (*Scanner).name
	case c == '}':
		s.closes(c)
	default:
		s.broken()
	}
}

// name is within a key. One that is too long or has an escape in it is none that is looked at.
func (s *Scanner) name(c byte) {
	switch {
	case s.skip.escaped:
		s.skip.escaped = false
	case c == '\\':
		s.skip.escaped, s.skip.quoted = true, true
	case c == '"':
		s.next = nil
		if !s.skip.quoted && len(s.key) <= maxKey {
			s.next = s.frames[len(s.frames)-1].shape.of(s.key)
		}
		s.step = (*Scanner).colon
	case c < ' ':
		s.broken()
	case len(s.key) <= maxKey:
		s.key = append(s.key, c)
	}
}

func (s *Scanner) colon(c byte) {
	switch {
	case blank(c):
	case c == ':':
		s.step = (*Scanner).value
	default:
		s.broken()
	}
}

// literal is within a number, true, false or null.
func (s *Scanner) literal(c byte) {
	switch {
	case c == ',' || c == '}' || c == ']' || blank(c):
		s.step = (*Scanner).after
		s.after(c)
	case len(s.kept)-s.from < maxLiteral:
		s.kept = append(s.kept, c)
	default:
		s.broken()
	}
}

// text is within a string that is looked at.
func (s *Scanner) text(c byte) {
	switch {
	case s.str.escape != nil:
		s.escape(c)
	case c == '\\':
		s.str.escape = append(s.str.unit[:0], c)
	case c == '"':
		s.kept = append(s.str.end(s.kept), c)
		s.step = (*Scanner).after
	case c < ' ': // not JSON, but no reason to lose the event
		s.kept = s.str.add(s.kept, ' ')
	default:
		s.kept = s.str.add(s.kept, c)
	}
}

// escape is within an escape sequence: it is kept whole or not at all.
func (s *Scanner) escape(c byte) {
	s.str.escape = append(s.str.escape, c)
	if unit := s.str.escape; unit[1] != 'u' || len(unit) == len(s.str.unit) {
		s.kept = s.str.add(s.kept, unit...)
		s.str.escape = nil
	}
}

// skipped is within a value that nobody looks at.
func (s *Scanner) skipped(c byte) {
	in := &s.skip
	switch {
	case in.escaped:
		in.escaped = false
	case in.quoted:
		in.escaped = c == '\\'
		in.quoted = c != '"'
	case c == '"':
		in.quoted = true
	case c == '{' || c == '[':
		in.depth++
	case (c == '}' || c == ']') && in.depth > 0:
		in.depth--
	case (c == '}' || c == ']' || c == ',') && in.depth == 0:
		s.step = (*Scanner).after
		s.after(c)
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// cutting is a string of which the beginning and the end are kept.
type cutting struct {
	from   int // where it begins in the line
	tail   []byte
	half   int // where tail may be cut
	cut    bool
	escape []byte // what has come of an escape sequence; nil outside
	unit   [len(`\u0000`)]byte
}

// add takes a character or an escape sequence.
func (t *cutting) add(kept []byte, unit ...byte) []byte {
	if t.tail == nil && len(kept)-t.from < headKept {
		return append(kept, unit...)
	}
	if t.half == 0 && len(t.tail) >= tailKept {
		t.half = len(t.tail)
	}
	if len(t.tail) >= 2*tailKept {
		t.tail = t.tail[:copy(t.tail, t.tail[t.half:])]
		t.half, t.cut = len(t.tail), true
	}
	t.tail = append(t.tail, unit...)
	return kept
}

// end is the string with what was kept of its end.
func (t *cutting) end(kept []byte) []byte {
	if t.cut {
		kept = append(kept, "…"...)
	}
	kept = append(kept, t.tail...)
	t.tail = nil
	return kept
}

// Bounded keeps the beginning and the end of a text that grows, as they are kept of a long string.
func Bounded(text string) string {
	if len(text) <= headKept+2*tailKept {
		return text
	}
	return text[:headKept] + "…" + text[len(text)-tailKept:]
}
