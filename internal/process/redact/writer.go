package redact

import (
	"fmt"
	"io"
)

// New is a Writer of a Set of its own.
func New(secrets []Secret, to io.Writer) *Writer { return NewSet(secrets).Writer(to) }

// Writer passes on what is written to it, without the secrets.
type Writer struct {
	set *Set
	to  io.Writer
	// held may be the beginning of a secret; the first covered bytes of it belong to one already.
	held    []byte
	covered int
	// last is the mark that was written last, when nothing was written after it.
	last string
	out  []byte
}

// Write takes all of p unless the writer below fails.
func (w *Writer) Write(p []byte) (int, error) {
	if len(w.set.sorted) == 0 {
		return w.pass(p)
	}
	text := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		text = w.held
	}
	kept := w.replace(text, false)
	// Within one array, towards its beginning: append moves rightly what overlaps.
	w.held = append(w.held[:0], text[kept:]...)
	if err := w.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what was kept back. It doesn't close the writer below.
func (w *Writer) Close() error {
	if len(w.held) > 0 {
		w.replace(w.held, true)
		w.held = nil
	}
	return w.flush()
}

func (w *Writer) pass(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		return n, fmt.Errorf("write without secrets: %w", err)
	}
	return n, nil
}

func (w *Writer) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.pass(w.out)
	w.out = w.out[:0]
	return err
}

// replace puts text into out, up to where it has to be kept back.
func (w *Writer) replace(text []byte, final bool) (kept int) {
	from, at := w.covered, 0 // from is the first byte that is neither in out nor covered by a mark
	for ; at < len(text); at++ {
		if !w.set.may(text[at:]) {
			continue
		}
		mark, length, more := w.set.match(text[at:])
		if more && !final {
			break
		}
		if end := at + length; length > 0 && end > from {
			w.literal(text[min(from, at):at])
			w.mark(mark)
			from = end
		}
	}
	if from < at {
		w.literal(text[from:at])
		from = at
	}
	w.covered = from - at
	return at
}

func (w *Writer) literal(b []byte) {
	if len(b) > 0 {
		w.out = append(w.out, b...)
		w.last = ""
	}
}

// mark names a secret. Pieces of one that touch are one.
func (w *Writer) mark(mark string) {
	if w.last != mark {
		w.out = append(w.out, mark...)
		w.last = mark
	}
}
