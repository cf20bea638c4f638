package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi/eventstream"
	"orch/internal/httpapi/front"
)

// errStreamOver ends the goroutine that reads the log once nobody listens.
var errStreamOver = errors.New("the stream is over")

func (h *handlers) openStream(ctx context.Context, id uuid.UUID, offset int64) (api.GetRunLogResponseObject, error) {
	if h.isStopping() {
		return nil, stopping()
	}
	select {
	case h.streams <- struct{}{}:
	default:
		return nil, &RefusedError{
			Status: http.StatusServiceUnavailable, Code: CodeTooManyStreams,
			Detail: fmt.Sprintf("%d logs are being followed already", cap(h.streams)),
		}
	}
	return streamAnswer(func(w http.ResponseWriter) error {
		defer func() { <-h.streams }()
		if err := h.follow(ctx, w, id, offset); err != nil {
			return &sendError{err}
		}
		return nil
	}), nil
}

// streamAnswer is an answer that takes as long as the run.
type streamAnswer func(w http.ResponseWriter) error

// VisitGetRunLogResponse writes the stream.
func (a streamAnswer) VisitGetRunLogResponse(w http.ResponseWriter) error { return a(w) }

// followed is how a log came to its end.
type followed struct {
	end RunEnd
	err error
}

// follow sends a log until the run has ended, the client has gone or the server stops. The log is read in a
// goroutine of its own, so that heartbeats go out while nothing is written.
func (h *handlers) follow(ctx context.Context, w http.ResponseWriter, id uuid.UUID, offset int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	s, err := eventstream.Open(w)
	if err != nil {
		return err
	}
	parts := make(chan LogPart)
	taken := make(chan struct{})
	done := make(chan followed, 1)
	go func() { done <- h.readLog(ctx, id, offset, parts, taken) }()
	defer func() { cancel(errStreamOver); <-done }()

	beat := time.NewTicker(h.heartbeat)
	defer beat.Stop()
	text := eventstream.Chunker{Next: offset}
	for {
		select {
		case part := <-parts:
			err := sendChunks(s, text.Add(part.Offset, part.Data))
			taken <- struct{}{}
			if err != nil {
				return err
			}
		case result := <-done:
			done <- result // for the deferred receive
			return h.finish(ctx, s, id, &text, result)
		case <-beat.C:
			if err := s.Beat(); err != nil {
				return err
			}
		case <-h.stop:
			return nil
		case <-ctx.Done():
			return nil // the client has gone: nobody is left to tell
		}
	}
}

func (h *handlers) readLog(ctx context.Context, id uuid.UUID, offset int64, parts chan<- LogPart, taken <-chan struct{}) (result followed) {
	defer func() {
		if caught := recover(); caught != nil {
			result = followed{err: fmt.Errorf("follow a log: panic: %v", caught)}
		}
	}()
	end, err := h.runs.FollowLog(ctx, id, offset, func(part LogPart) error {
		select {
		case parts <- part:
			<-taken // the bytes are ours only until we return
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return followed{end: end, err: err}
}

// finish sends what is left and the end event. After an error the stream just closes: the client comes again.
func (h *handlers) finish(ctx context.Context, s *eventstream.Stream, id uuid.UUID, text *eventstream.Chunker, result followed) error {
	if result.err != nil {
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "log stream broke off", slog.String("run_id", id.String()),
				slog.String("request_id", front.RequestID(ctx)), slog.Any("error", result.err))
		}
		return nil
	}
	if err := sendChunks(s, text.Rest()); err != nil {
		return err
	}
	end := api.RunEnd{RunID: id, ExitCode: result.end.ExitCode, FinishedAt: result.end.FinishedAt, LogEnd: text.Next}
	end.Ended, end.Signal, end.Outcome = orNull(result.end.Ended), orNull(result.end.Signal), orNull(result.end.Outcome)
	return s.Event("end", "", end)
}

func sendChunks(s *eventstream.Stream, chunks []eventstream.Chunk) error {
	for _, c := range chunks {
		data := api.LogChunk{Offset: c.Offset, Text: c.Text}
		if err := s.Event("log", strconv.FormatInt(c.End, 10), data); err != nil {
			return err
		}
	}
	return nil
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
