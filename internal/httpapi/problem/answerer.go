package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"orch/api"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/queueview"
	"orch/internal/httpapi/snapshot"
)

// Answerer turns errors into answers: the one place that does.
type Answerer struct {
	Log *slog.Logger
	// Code is Config.ErrorCode.
	Code func(error) string

	outage outage
}

// Answered notes that the database has answered, which ends an outage.
func (a *Answerer) Answered(ctx context.Context) {
	if a.outage.becomes("") {
		a.Log.InfoContext(ctx, "the database answers again")
	}
}

// Write answers with an error.
func (a *Answerer) Write(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has gone; nobody reads the answer
	}
	refused := a.translate(err)
	id := front.RequestID(r.Context())
	if awayDetail(refused.Code) != "" && a.outage.becomes(refused.Code) {
		a.Log.WarnContext(r.Context(), "the database is away, what needs it is refused", slog.String("code", refused.Code))
	}
	switch {
	case refused.Code == CodeInternal:
		a.Log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("request_id", id), slog.Any("error", err))
	case refused.Err != nil:
		a.Log.DebugContext(r.Context(), "request refused", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("request_id", id), slog.Any("error", err))
	}
	problem := api.Problem{
		Type: "about:blank", Title: http.StatusText(refused.Status), Status: refused.Status, Code: refused.Code, Detail: refused.Detail,
	}
	if id != "" {
		problem.RequestID = &id
	}
	if len(refused.Fields) > 0 {
		problem.Errors = &refused.Fields
	}
	if len(refused.Checks) > 0 {
		problem.Checks = &refused.Checks
	}
	body, err := json.Marshal(problem)
	if err != nil {
		a.Log.ErrorContext(r.Context(), "problem not encoded", slog.Any("error", err))
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(refused.Status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		a.Log.DebugContext(r.Context(), "problem not sent", slog.Any("error", err))
	}
}

func (a *Answerer) translate(err error) *RefusedError {
	var refused *RefusedError
	var tooLarge *http.MaxBytesError
	var badFormat *api.InvalidParamFormatError
	var tooMany *api.TooManyValuesForParamError
	var missing *api.RequiredParamError
	var noSnapshot *queueview.NoSnapshotError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &tooLarge):
		return BodyTooLarge(tooLarge.Limit)
	case errors.As(err, &badFormat):
		return BadParameter(badFormat.ParamName, allowedParameter(badFormat.ParamName))
	case errors.As(err, &tooMany):
		return BadParameter(tooMany.ParamName, "must be given once")
	case errors.As(err, &missing):
		return BadParameter(missing.ParamName, "must be given")
	case errors.As(err, &noSnapshot):
		return &RefusedError{
			Status: http.StatusServiceUnavailable, Code: CodeNoSnapshot,
			Detail: "there is no snapshot yet (" + noSnapshot.Code + "); try again later", Err: err,
		}
	case errors.Is(err, snapshot.ErrClosed):
		return Stopping()
	}
	if code := a.Code(err); awayDetail(code) != "" {
		return &RefusedError{Status: http.StatusServiceUnavailable, Code: code, Detail: awayDetail(code), Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &RefusedError{Status: http.StatusServiceUnavailable, Code: CodeTimeout, Detail: "it took too long; try again later", Err: err}
	}
	return Internal(err)
}

func allowedParameter(name string) string {
	switch name {
	case "limit", "offset":
		return "must be a whole number"
	case "id":
		return "must be the id of a job (a number) or of a run (a UUID)"
	case "follow":
		return "must be 0 or 1"
	}
	return "isn't well-formed"
}
