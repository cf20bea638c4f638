package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen writes lines and, on a terminal, keeps one progress line below them. In a pipe there is no progress line.
// It is safe for concurrent use.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	width  func() int // 0: no terminal
	status string
	shown  bool
}

// newScreen finds out whether out is a terminal.
func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: func() int { return 0 }}
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

// interactive tells whether a progress line can be shown.
func (s *screen) interactive() bool { return s.width() > 0 }

// line writes one line above the progress line.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
	s.draw()
}

// progress replaces the progress line; in a pipe nothing happens.
func (s *screen) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.interactive() {
		return
	}
	s.clear()
	s.status = text
	s.draw()
}

// close takes the progress line away.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.status = ""
}

func (s *screen) clear() {
	if s.shown {
		_, _ = io.WriteString(s.out, "\r\x1b[K")
		s.shown = false
	}
}

func (s *screen) draw() {
	if s.status == "" || !s.interactive() {
		return
	}
	_, _ = io.WriteString(s.out, fit(s.status, s.width()-1))
	s.shown = true
}

// fit cuts text to at most width characters.
func fit(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// printable takes control characters out of what a program wrote, so that an agent can't drive the terminal of the
// person who watches it. Tabs stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return -1
		}
		return r
	}, text)
}

// elapsed renders a duration in a person's words: 0.4s, 12s, 3m05s, 2h10m.
func elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// lineBuffer gives whole lines to emit and keeps what isn't one yet.
type lineBuffer struct {
	rest string
	emit func(string)
}

// maxLine bounds a line that never ends.
const maxLine = 4096

func (b *lineBuffer) add(text string) {
	b.rest += text
	for {
		end := strings.IndexByte(b.rest, '\n')
		if end < 0 && len(b.rest) <= maxLine {
			return
		}
		if end < 0 {
			end = maxLine
			b.emit(strings.ToValidUTF8(b.rest[:end], "�"))
			b.rest = b.rest[end:]
			continue
		}
		b.emit(strings.TrimRight(b.rest[:end], "\r"))
		b.rest = b.rest[end+1:]
	}
}

func (b *lineBuffer) flush() {
	if b.rest != "" {
		b.emit(b.rest)
		b.rest = ""
	}
}
