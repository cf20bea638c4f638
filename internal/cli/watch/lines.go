package watch

import "strings"

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
