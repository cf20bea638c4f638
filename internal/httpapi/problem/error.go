// Package problem says what went wrong with a request, and answers with it as problem+json (RFC 9457).
package problem

import (
	"fmt"
	"net/http"
	"strings"

	"orch/api"
)

// Codes of problems of the server itself; package front has some more.
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
	return InvalidFields(CodeInvalid, api.FieldError{Field: field, Message: allowed})
}

// Refuse says with a code of its own, and status 422, why something can't be done.
func Refuse(code, detail string) error {
	return &RefusedError{Status: http.StatusUnprocessableEntity, Code: code, Detail: detail}
}

// Stopping says that the server takes nothing more.
func Stopping() *RefusedError {
	return &RefusedError{Status: http.StatusServiceUnavailable, Code: CodeStopping, Detail: "the server is stopping"}
}

// Internal says that the server is to blame, and no more.
func Internal(err error) *RefusedError {
	return &RefusedError{
		Status: http.StatusInternalServerError, Code: CodeInternal,
		Detail: "something went wrong in the server; its log says more under this request_id", Err: err,
	}
}

// BadParameter says that a parameter is wrong, and what is allowed.
func BadParameter(name, allowed string) *RefusedError {
	return &RefusedError{
		Status: http.StatusBadRequest, Code: CodeBadParameter, Detail: name + ": " + allowed,
		Fields: []api.FieldError{{Field: name, Message: allowed}},
	}
}

// BodyTooLarge says how large a body may be.
func BodyTooLarge(limit int64) *RefusedError {
	return &RefusedError{
		Status: http.StatusRequestEntityTooLarge, Code: CodeBodyTooLarge,
		Detail: fmt.Sprintf("the body may hold at most %d bytes", limit),
	}
}

// InvalidFields says that fields of a body are wrong, and in what way.
func InvalidFields(code string, fields ...api.FieldError) error {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.Field + ": " + f.Message
	}
	return &RefusedError{Status: http.StatusUnprocessableEntity, Code: code, Detail: strings.Join(texts, "; "), Fields: fields}
}
