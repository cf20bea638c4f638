package terminal

import (
	"bytes"
	"testing"
)

func TestSafeWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &safeWriter{out: &out}
	for _, b := range []byte("a\x1b]0;title\x07\tb\r\n\xc2\x9b2Jc \u202ex \u00fc\xff\n") { // torn anywhere
		if n, err := w.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := out.String(), "a]0;title\tb\n2Jc x \u00fc\ufffd\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSafeElsewhere(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := Safe(&out).Write([]byte("\x1b[2J\xff")); err != nil || out.String() != "\x1b[2J\xff" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
