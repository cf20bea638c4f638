// Package hear tells what the program of a run has said of itself in all.
package hear

import (
	"errors"
	"io"

	"orch/internal/process"
	"orch/internal/transcript"
)

// Speaks says whether the format tells when the model begins to answer.
func Speaks(f transcript.Format) bool {
	return f != transcript.None && f != transcript.Command && f != transcript.Aider
}

// All is what a program said of itself: what its shim has heard, or, where that isn't known to the end, what its output
// says as far as it was kept.
func All(shim *process.Run, format transcript.Format, exit process.Exit) transcript.Said {
	said, err := shim.Said()
	if err == nil && said.Lines > 0 && exit.Why != process.WhyShimDead {
		return said
	}
	read, err := transcript.Read(format, &logReader{log: shim.Log()})
	if err != nil || read.Lines < said.Lines {
		return said
	}
	return read
}

// logReader reads what was kept of a run's output, up to its present end.
type logReader struct {
	log *process.Log
	at  int64
}

// Read implements io.Reader.
func (l *logReader) Read(p []byte) (int, error) {
	for {
		n, err := l.log.ReadAt(p, l.at)
		if dropped, ok := errors.AsType[*process.DroppedError](err); ok && dropped.Oldest > l.at {
			l.at = dropped.Oldest
			continue
		}
		l.at += int64(n)
		if n > 0 {
			err = nil
		} else if err == nil {
			err = io.EOF
		}
		return n, err
	}
}
