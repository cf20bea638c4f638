// Package terminal writes for a person who watches: lines, one progress line below them, and nothing that could drive the
// terminal itself.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen writes lines and, on a terminal, keeps one progress line below them. In a pipe there is no progress line.
// It is safe for concurrent use.
type Screen struct {
	mu     sync.Mutex
	out    io.Writer
	width  func() int // 0: no terminal
	status string
	shown  bool
}

// New finds out whether out is a terminal.
func New(out io.Writer) *Screen {
	s := &Screen{out: out, width: func() int { return 0 }}
	if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		s.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				return 80
			}
			return width
		}
	}
	return s
}

// Interactive tells whether a progress line can be shown.
func (s *Screen) Interactive() bool { return s.width() > 0 }

// Line writes one line above the progress line.
func (s *Screen) Line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
	s.draw()
}

// Progress replaces the progress line; in a pipe nothing happens.
func (s *Screen) Progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Interactive() {
		return
	}
	s.clear()
	s.status = text
	s.draw()
}

// Close takes the progress line away.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.status = ""
}

func (s *Screen) clear() {
	if s.shown {
		_, _ = io.WriteString(s.out, "\r\x1b[K")
		s.shown = false
	}
}

func (s *Screen) draw() {
	if s.status == "" || !s.Interactive() {
		return
	}
	_, _ = io.WriteString(s.out, Fit(s.status, s.width()-1))
	s.shown = true
}

// Fit cuts text to at most width characters.
func Fit(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Printable takes control characters out of what a program wrote, so that an agent can't drive the terminal of the
// person who watches it. Tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !printable(r) {
			return -1
		}
		return r
	}, text)
}

// printable says whether a character only prints: controls drive the terminal, and direction marks make a text read as
// what it isn't. Tabs are harmless.
func printable(r rune) bool {
	switch {
	case r == '\t':
		return true
	case r < ' ', r == 0x7f, r >= 0x80 && r < 0xa0: // C0, DEL, C1
		return false
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c:
		return false
	default:
		return true
	}
}
