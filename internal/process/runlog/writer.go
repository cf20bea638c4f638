package runlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"orch/internal/process/durable"
)

const (
	// segmentsPerCap is how finely the oldest output is dropped.
	segmentsPerCap = 8
	// keptBytes is how much of the newest output is kept in memory while it can't be written.
	keptBytes = 256 << 10
	// lastBytes is how much of the end of the output has its room from the beginning.
	lastBytes = 64 << 10
	// RetryAfter is the pause between two attempts to write when there was no room.
	RetryAfter = time.Second
	// hasty is the shortest pause when there is more to write.
	hasty = 100 * time.Millisecond
)

// Writer appends to the last segment, begins a new one when it is full, and drops the oldest beyond the cap. It is for one
// goroutine at a time.
type Writer struct {
	dir     string
	segment int64 // size of a full segment
	cap     int64
	closed  []segment
	file    *os.File // nil while the next segment can't be opened
	start   int64    // offset of the open segment
	end     int64    // offset after the last byte in it
	// kept is the newest output that isn't written, beginning at the offset keptAt.
	kept   []byte
	keptAt int64
	lost   int64
	failed error
	tried  time.Time
	last   *durable.Room
}

// NewWriter begins a log of at most limit bytes, and takes the room for its end.
func NewWriter(dir string, limit int64) (*Writer, error) {
	w := &Writer{dir: dir, cap: limit, segment: max(limit/segmentsPerCap, 1)}
	var err error
	if w.last, err = durable.Reserve(dir, min(lastBytes, limit)); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := w.open(); err != nil {
		w.last.Drop()
		return nil, err
	}
	return w, nil
}

// Size is the offset after everything that was given to Write.
func (w *Writer) Size() int64 { return max(w.end, w.keptAt+int64(len(w.kept))) }

// Lost is how much of it is in no file, and never will be.
func (w *Writer) Lost() int64 { return w.lost }

// Behind reports whether there is something to write that had no room.
func (w *Writer) Behind() bool { return len(w.kept) > 0 }

// Write takes all of p: what can't be written is kept as long as it is among the newest.
func (w *Writer) Write(p []byte) (int, error) {
	if len(w.kept) > 0 {
		w.keep(p)
		if time.Since(w.tried) >= hasty {
			w.Retry()
		}
		return len(p), nil
	}
	n, err := w.put(p)
	if err != nil {
		w.keptAt = w.end
		w.keep(p[n:])
		w.failed, w.tried = err, time.Now()
	}
	return len(p), nil
}

func (w *Writer) keep(p []byte) {
	w.kept = append(w.kept, p...)
	if over := len(w.kept) - keptBytes; over > 0 {
		w.kept = append(w.kept[:0], w.kept[over:]...)
		w.keptAt += int64(over)
		w.lost += int64(over)
	}
}

// Retry writes what is kept, as far as there is room.
func (w *Writer) Retry() {
	if len(w.kept) == 0 {
		return
	}
	w.tried = time.Now()
	if w.failed = w.skip(); w.failed != nil {
		return
	}
	n, err := w.put(w.kept)
	w.kept, w.keptAt, w.failed = w.kept[n:], w.end, err
	if len(w.kept) == 0 {
		w.kept, w.keptAt = nil, 0 // the memory too
	}
}

// skip leaves a hole where output was lost: the next segment begins after it.
func (w *Writer) skip() error {
	if w.keptAt == w.end {
		return nil
	}
	if err := w.rotate(w.keptAt); err != nil {
		return err
	}
	w.end = w.keptAt
	return nil
}

// put writes to as many segments as it takes.
func (w *Writer) put(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		room := w.segment - (w.end - w.start)
		if room <= 0 || w.file == nil {
			if err := w.rotate(w.end); err != nil {
				return written, err
			}
			continue
		}
		n, err := w.file.Write(p[:min(room, int64(len(p)))])
		w.end += int64(n)
		written += n
		p = p[n:]
		if err != nil {
			return written, fmt.Errorf("write log: %w", err)
		}
	}
	return written, nil
}

// rotate begins a segment at an offset. It makes room before, so that the files never hold more than the cap. When it
// fails it can be called again.
func (w *Writer) rotate(at int64) error {
	if w.file != nil {
		err := w.file.Close()
		w.closed = append(w.closed, segment{path: w.file.Name(), start: w.start})
		w.file = nil
		if err != nil {
			return fmt.Errorf("close log segment: %w", err)
		}
	}
	w.start = at
	for len(w.closed) > 0 && w.start-w.closed[0].start+w.segment > w.cap {
		if err := os.Remove(w.closed[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop log segment: %w", err)
		}
		w.closed = w.closed[1:]
	}
	return w.open()
}

func (w *Writer) open() error {
	f, err := os.OpenFile(SegmentPath(w.dir, w.start), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	w.file = f
	return nil
}

// Close makes the end of the log durable: a record of the run must not outlive the output that it judges. The error says
// why output was lost.
func (w *Writer) Close() error {
	w.Retry()
	err := w.failed
	if w.file != nil {
		err = errors.Join(err, w.file.Sync(), w.file.Close())
		w.file = nil
	}
	if len(w.kept) > 0 {
		err = errors.Join(err, w.closeFull())
	}
	w.last.Drop()
	if err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// closeFull puts as much of the end as possible where room was taken for it.
func (w *Writer) closeFull() error {
	size := w.Size()
	most := min(int64(len(w.kept)), w.last.Size())
	at := size - most
	if err := w.last.Become(SegmentPath(w.dir, at), w.kept[int64(len(w.kept))-most:]); err != nil {
		w.lost += int64(len(w.kept))
		w.keptAt, w.kept = size, nil
		return err
	}
	w.lost += int64(len(w.kept)) - most
	w.start, w.end, w.kept = at, size, nil
	return nil
}
