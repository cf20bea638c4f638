package terminal

import (
	"io"
	"unicode/utf8"
)

// Safe returns a writer for what programs printed. On a terminal it leaves out what could drive it; elsewhere it is out
// itself, byte for byte.
func Safe(out io.Writer) io.Writer {
	if New(out).Interactive() {
		return &safeWriter{out: out}
	}
	return out
}

// safeWriter keeps an unfinished character until its rest comes.
type safeWriter struct {
	out  io.Writer
	rest []byte
}

// Write implements io.Writer.
func (w *safeWriter) Write(p []byte) (int, error) {
	text := append(w.rest, p...) //nolint:gocritic // rest is replaced below
	clean := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		if r == '\n' || printable(r) {
			clean = utf8.AppendRune(clean, r)
		}
		text = text[size:]
	}
	w.rest = append([]byte(nil), text...)
	if _, err := w.out.Write(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}
