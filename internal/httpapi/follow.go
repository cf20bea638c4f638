package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi/eventstream"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/problem"
)

func (h *handlers) openStream(ctx context.Context, id uuid.UUID, offset int64) (api.GetRunLogResponseObject, error) {
	if h.isStopping() {
		return nil, problem.Stopping()
	}
	select {
	case h.streams <- struct{}{}:
	default:
		return nil, &RefusedError{
			Status: http.StatusServiceUnavailable, Code: problem.CodeTooManyStreams,
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

// follow sends a log until the run has ended, the client has gone or the server stops; then how the run ended. After
// an error of the log the stream just closes: the client comes again.
func (h *handlers) follow(ctx context.Context, w http.ResponseWriter, id uuid.UUID, offset int64) error {
	s, err := eventstream.Open(w)
	if err != nil {
		return err
	}
	var run RunEnd
	source := func(ctx context.Context, emit func(offset int64, part []byte) error) (err error) {
		run, err = h.runs.FollowLog(ctx, id, offset, func(part LogPart) error { return emit(part.Offset, part.Data) })
		return err
	}
	logEnd, err := s.Follow(ctx, source, eventstream.Following{Offset: offset, Beat: h.heartbeat, Stop: h.stop})
	var broken *eventstream.SourceError
	switch {
	case errors.Is(err, eventstream.ErrOver):
		return nil
	case errors.As(err, &broken):
		h.log.WarnContext(ctx, "log stream broke off", slog.String("run_id", id.String()),
			slog.String("request_id", front.RequestID(ctx)), slog.Any("error", err))
		return nil
	case err != nil:
		return err
	}
	end := api.RunEnd{RunID: id, ExitCode: run.ExitCode, FinishedAt: run.FinishedAt, LogEnd: logEnd}
	end.Ended, end.Signal, end.Outcome = orNull(run.Ended), orNull(run.Signal), orNull(run.Outcome)
	return s.Event("end", "", end)
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
