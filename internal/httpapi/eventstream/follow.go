package eventstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"orch/api"
)

// ErrOver says that a stream ended before the log did: the client has gone, or the server stops.
var ErrOver = errors.New("the stream is over")

// SourceError is a failure of the log, not of the stream.
type SourceError struct{ Err error }

// Error returns the cause's text.
func (e *SourceError) Error() string { return "follow a log: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// Source gives every byte of a log to emit, in order, as it is written, and returns at the log's end. The bytes are
// emit's until it returns.
type Source func(ctx context.Context, emit func(offset int64, part []byte) error) error

// Following says how a log is followed.
type Following struct {
	Offset int64           // where the source begins
	Beat   time.Duration   // between comments while nothing is written
	Stop   <-chan struct{} // closed when the server begins to stop
}

// part is what a source emitted.
type part struct {
	offset int64
	data   []byte
}

// Follow sends a log as log events until its end, and returns the offset there; else ErrOver, a *SourceError, or an
// error of the connection. The source has returned by then. It runs in a goroutine of its own, so that heartbeats go
// out while nothing is written.
func (s *Stream) Follow(ctx context.Context, source Source, f Following) (end int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	parts, taken := make(chan part), make(chan struct{})
	done, returned := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(returned)
		done <- read(ctx, source, parts, taken)
	}()
	defer func() { cancel(ErrOver); <-returned }()

	beat := time.NewTicker(f.Beat)
	defer beat.Stop()
	text := Chunker{Next: f.Offset}
	for {
		select {
		case p := <-parts:
			err := s.send(text.Add(p.offset, p.data))
			taken <- struct{}{}
			if err != nil {
				return text.Next, err
			}
		case err := <-done:
			if err != nil && ctx.Err() != nil {
				return text.Next, ErrOver
			}
			if err != nil {
				return text.Next, &SourceError{err}
			}
			err = s.send(text.Rest())
			return text.Next, err
		case <-beat.C:
			if err := s.Beat(); err != nil {
				return text.Next, err
			}
		case <-f.Stop:
			return text.Next, ErrOver
		case <-ctx.Done():
			return text.Next, ErrOver
		}
	}
}

func read(ctx context.Context, source Source, parts chan<- part, taken <-chan struct{}) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("panic: %v", caught)
		}
	}()
	return source(ctx, func(offset int64, data []byte) error {
		select {
		case parts <- part{offset, data}:
			<-taken // the bytes are ours only until we return
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// send sends pieces of a log. The id of each is where a client that lost the stream goes on.
func (s *Stream) send(chunks []Chunk) error {
	for _, c := range chunks {
		if err := s.Event("log", strconv.FormatInt(c.End, 10), api.LogChunk{Offset: c.Offset, Text: c.Text}); err != nil {
			return err
		}
	}
	return nil
}
