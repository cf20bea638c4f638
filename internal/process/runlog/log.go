package runlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"

	"orch/internal/process/durable"
)

// DroppedError means that the bytes at an offset were dropped to keep the log within its cap.
type DroppedError struct {
	// Oldest is the first offset that can still be read.
	Oldest int64
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("log is kept from offset %d on", e.Oldest)
}

const (
	chunkSize   = 32 << 10
	followFirst = 5 * time.Millisecond
	followMost  = 250 * time.Millisecond
)

// Log reads the output of a run, living or ended.
type Log struct {
	dir   string
	ended func() bool
}

// Open reads the log of a run directory; there need not be one yet. Ended reports whether nothing can be added any more.
func Open(dir string, ended func() bool) *Log { return &Log{dir: dir, ended: ended} }

// Size is the offset after the last byte.
func (l *Log) Size() (int64, error) {
	all, err := segments(l.dir)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	last := all[len(all)-1]
	info, err := os.Lstat(last.path)
	if err != nil {
		return 0, fmt.Errorf("measure log: %w", err)
	}
	return last.start + info.Size(), nil
}

// ReadAt reads from a logical offset. It gives io.EOF at the present end and a *DroppedError before the oldest byte;
// unlike an io.ReaderAt it may stop early where a segment ends.
func (l *Log) ReadAt(p []byte, offset int64) (int, error) {
	for {
		all, err := segments(l.dir)
		if err != nil {
			return 0, err
		}
		n, err := readSegments(all, p, offset)
		// A segment that was dropped between the listing and the opening: list again.
		if !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
	}
}

func readSegments(all []segment, p []byte, offset int64) (int, error) {
	at := -1
	for i, s := range all {
		if s.start <= offset {
			at = i
		}
	}
	if at < 0 {
		if len(all) == 0 {
			return 0, io.EOF
		}
		return 0, &DroppedError{Oldest: all[0].start}
	}
	f, err := durable.OpenFile(all[at].path)
	if err != nil {
		return 0, fmt.Errorf("open log segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	if at+1 < len(all) { // never past the next segment's start
		p = p[:min(int64(len(p)), all[at+1].start-offset)]
	}
	n, err := f.ReadAt(p, offset-all[at].start)
	if n > 0 {
		return n, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read log: %w", err)
	}
	if at+1 < len(all) { // a segment is whole once there is a next one: bytes that miss were lost
		return 0, &DroppedError{Oldest: all[at+1].start}
	}
	return 0, io.EOF
}

// Tail reads at most the last n bytes.
func (l *Log) Tail(n int64) ([]byte, error) {
	size, err := l.Size()
	if err != nil {
		return nil, err
	}
	tail := make([]byte, 0, min(n, size))
	for offset := max(size-n, 0); offset < size; {
		got, err := l.ReadAt(tail[len(tail):cap(tail)], offset)
		var dropped *DroppedError
		switch {
		case errors.As(err, &dropped):
			offset = dropped.Oldest
			continue
		case errors.Is(err, io.EOF) || (err == nil && got == 0):
			return tail, nil
		case err != nil:
			return nil, err
		}
		tail = tail[:len(tail)+got]
		offset += int64(got)
	}
	return tail, nil
}

// Chunk is a piece of output.
type Chunk struct {
	// Offset is greater than the end of the chunk before where output was dropped meanwhile.
	Offset int64
	// Data is valid until the next step of the iteration.
	Data []byte
}

// Follow yields the output from an offset on until the run has ended and everything was read, or ctx is done; its
// cause is the error yielded then.
func (l *Log) Follow(ctx context.Context, offset int64) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		buf := make([]byte, chunkSize)
		pause := followFirst
		for {
			// Asked before the read: what is read after the end is all there will be.
			ended := l.ended()
			n, err := l.ReadAt(buf, offset)
			var dropped *DroppedError
			switch {
			case errors.As(err, &dropped):
				offset = dropped.Oldest
				continue
			case err != nil && !errors.Is(err, io.EOF):
				yield(Chunk{}, err)
				return
			case n > 0:
				if !yield(Chunk{Offset: offset, Data: buf[:n]}, nil) {
					return
				}
				offset += int64(n)
				pause = followFirst
			case ended:
				return
			}
			if n > 0 && ctx.Err() == nil {
				continue
			}
			if err := sleep(ctx, pause); err != nil {
				yield(Chunk{}, err)
				return
			}
			pause = min(2*pause, followMost)
		}
	}
}

// sleep waits, or gives the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
