package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"orch/api"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/queueview"
	"orch/internal/httpapi/snapshot"
)

// Codes of problems that this package itself makes; package front has some more.
const (
	CodeNotFound        = "not_found"
	CodeBadMethod       = "method_not_allowed"
	CodeBadParameter    = "bad_parameter"
	CodeBadJSON         = "bad_json"
	CodeUnknownField    = "unknown_field"
	CodeMediaType       = "unsupported_media_type"
	CodeBodyTooLarge    = "body_too_large"
	CodeInvalid         = "invalid"
	CodeAdhocNeedSocket = "adhoc_needs_socket"
	CodeNoSnapshot      = "no_snapshot"
	CodeNotReady        = "not_ready"
	CodeTooManyStreams  = "too_many_streams"
	CodeTimeout         = "timeout"
	CodeStopping        = "stopping"
	CodeInternal        = "internal"
)

const detailInternal = "something went wrong in the server; its log says more under this request_id"

// RefusedError is an answer other than the one asked for. Code and Detail go to the client, Err only to the log.
type RefusedError struct {
	Status int
	Code   string
	Detail string
	Fields []api.FieldError
	Checks []api.Check
	Err    error
}

// Error names the code and the details.
func (e *RefusedError) Error() string {
	text := e.Code + ": " + e.Detail
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// NotFound says that what was asked for, e.g. "task demo-1", doesn't exist.
func NotFound(what string) error {
	return &RefusedError{Status: http.StatusNotFound, Code: CodeNotFound, Detail: "there is no " + what}
}

// Conflict says that the state of things doesn't allow it, e.g. with code "landing_started".
func Conflict(code, detail string) error {
	return &RefusedError{Status: http.StatusConflict, Code: code, Detail: detail}
}

// Invalid says that one field is wrong, and what is allowed.
func Invalid(field, allowed string) error {
	return invalidFields(CodeInvalid, api.FieldError{Field: field, Message: allowed})
}

// Refuse says with a code of its own, and status 422, why something can't be done.
func Refuse(code, detail string) error {
	return &RefusedError{Status: http.StatusUnprocessableEntity, Code: code, Detail: detail}
}

func stopping() *RefusedError {
	return &RefusedError{Status: http.StatusServiceUnavailable, Code: CodeStopping, Detail: "the server is stopping"}
}

func badParameter(name, allowed string) *RefusedError {
	return &RefusedError{
		Status: http.StatusBadRequest, Code: CodeBadParameter, Detail: name + ": " + allowed,
		Fields: []api.FieldError{{Field: name, Message: allowed}},
	}
}

func invalidFields(code string, fields ...api.FieldError) error {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.Field + ": " + f.Message
	}
	return &RefusedError{Status: http.StatusUnprocessableEntity, Code: code, Detail: strings.Join(texts, "; "), Fields: fields}
}

// problems turns errors into answers: the one place that does.
type problems struct {
	log    *slog.Logger
	code   func(error) string // Config.ErrorCode
	outage *outage
}

func (p problems) write(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has gone; nobody reads the answer
	}
	refused := p.translate(err)
	id := front.RequestID(r.Context())
	if awayDetail(refused.Code) != "" && p.outage.becomes(refused.Code) {
		p.log.WarnContext(r.Context(), "the database is away, what needs it is refused", slog.String("code", refused.Code))
	}
	switch {
	case refused.Code == CodeInternal:
		p.log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.String("request_id", id), slog.Any("error", err))
	case refused.Err != nil:
		p.log.DebugContext(r.Context(), "request refused", slog.String("method", r.Method), slog.String("path", r.URL.Path),
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
		p.log.ErrorContext(r.Context(), "problem not encoded", slog.Any("error", err))
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(refused.Status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		p.log.DebugContext(r.Context(), "problem not sent", slog.Any("error", err))
	}
}

func (p problems) translate(err error) *RefusedError {
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
		return bodyTooLarge(tooLarge.Limit)
	case errors.As(err, &badFormat):
		return badParameter(badFormat.ParamName, allowedParameter(badFormat.ParamName))
	case errors.As(err, &tooMany):
		return badParameter(tooMany.ParamName, "must be given once")
	case errors.As(err, &missing):
		return badParameter(missing.ParamName, "must be given")
	case errors.As(err, &noSnapshot):
		return &RefusedError{
			Status: http.StatusServiceUnavailable, Code: CodeNoSnapshot,
			Detail: "there is no snapshot yet (" + noSnapshot.Code + "); try again later", Err: err,
		}
	case errors.Is(err, snapshot.ErrClosed):
		return stopping()
	}
	if code := p.code(err); awayDetail(code) != "" {
		return &RefusedError{Status: http.StatusServiceUnavailable, Code: code, Detail: awayDetail(code), Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &RefusedError{Status: http.StatusServiceUnavailable, Code: CodeTimeout, Detail: "it took too long; try again later", Err: err}
	}
	return &RefusedError{
		Status: http.StatusInternalServerError, Code: CodeInternal,
		Detail: detailInternal, Err: err,
	}
}

func bodyTooLarge(limit int64) *RefusedError {
	return &RefusedError{
		Status: http.StatusRequestEntityTooLarge, Code: CodeBodyTooLarge,
		Detail: fmt.Sprintf("the body may hold at most %d bytes", limit),
	}
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
