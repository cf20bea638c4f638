package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"orch/internal/process"
)

// segmentsPerCap is how finely the oldest output is dropped.
const segmentsPerCap = 8

// segment is a full file of the log; start is the offset of its first byte.
type segment struct {
	path  string
	start int64
}

// logWriter appends to the last segment, begins a new one when it is full, and drops the oldest beyond the cap.
// One goroutine writes; size may be read by others.
type logWriter struct {
	dir     string
	segment int64 // size of a full segment
	cap     int64
	closed  []segment
	file    *os.File
	start   int64 // offset of the open segment
	size    atomic.Int64
}

func newLogWriter(dir string, limit int64) (*logWriter, error) {
	if limit <= 0 {
		limit = process.DefaultLogCap
	}
	w := &logWriter{dir: dir, cap: limit, segment: max(limit/segmentsPerCap, 1)}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *logWriter) open() error {
	f, err := os.OpenFile(process.SegmentPath(w.dir, w.start), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	w.file = f
	return nil
}

// Write implements io.Writer.
func (w *logWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		room := w.segment - (w.size.Load() - w.start)
		if room <= 0 {
			if err := w.rotate(); err != nil {
				return written, err
			}
			continue
		}
		n, err := w.file.Write(p[:min(room, int64(len(p)))])
		w.size.Add(int64(n))
		written += n
		p = p[n:]
		if err != nil {
			return written, fmt.Errorf("write log: %w", err)
		}
	}
	return written, nil
}

// rotate makes room before it begins a segment, so that the files never hold more than the cap.
func (w *logWriter) rotate() error {
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close log segment: %w", err)
	}
	w.closed = append(w.closed, segment{path: w.file.Name(), start: w.start})
	w.start = w.size.Load()
	for len(w.closed) > 0 && w.start-w.closed[0].start+w.segment > w.cap {
		if err := os.Remove(w.closed[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop log segment: %w", err)
		}
		w.closed = w.closed[1:]
	}
	return w.open()
}

// Close makes what is in the last segment durable: exit.json must not outlive the output that it judges.
func (w *logWriter) Close() error {
	if err := errors.Join(w.file.Sync(), w.file.Close()); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}
