package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/go-chi/chi/v5"

	"orch/api"
	"orch/internal/httpapi/problem"
	"orch/internal/httpapi/strictjson"
)

// maxBody bounds every request's body.
const maxBody = 1 << 20

// strictBodies checks the body of a request against the type that its route takes, before generated code decodes it
// leniently: unknown fields, text after the object and a wrong content type are refused.
func (h *handlers) strictBodies(next http.Handler) http.Handler {
	shapes := map[string]func() any{
		"POST /tasks":               func() any { return new(api.NewTask) },
		"POST /tasks/{key}/retry":   func() any { return new(api.RetryTask) },
		"POST /tasks/{key}/answer":  func() any { return new(api.AnswerTask) },
		"POST /tasks/{key}/restore": func() any { return new(api.RestoreTask) },
		"POST /pause":               func() any { return new(api.PauseRequest) },
		"POST /resume":              func() any { return new(api.ResumeRequest) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shape, ok := shapes[r.Method+" "+chi.RouteContext(r.Context()).RoutePattern()]
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		raw, err := readBody(w, r)
		if err == nil {
			err = decodeBody(raw, shape())
		}
		if err != nil {
			h.answer.Write(w, r, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		next.ServeHTTP(w, r)
	})
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, &RefusedError{
			Status: http.StatusUnsupportedMediaType, Code: problem.CodeMediaType, Detail: "send the header Content-Type: application/json",
		}
	}
	if r.ContentLength > maxBody {
		return nil, problem.BodyTooLarge(maxBody)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problem.BodyTooLarge(maxBody)
	case err != nil:
		return nil, &RefusedError{Status: http.StatusBadRequest, Code: problem.CodeBadJSON, Detail: "the body could not be read", Err: err}
	}
	return raw, nil
}

func decodeBody(raw []byte, into any) error {
	err := strictjson.Decode(raw, into)
	if err == nil {
		return nil
	}
	if unknown, ok := errors.AsType[*strictjson.UnknownFieldError](err); ok {
		return problem.InvalidFields(problem.CodeUnknownField, api.FieldError{Field: unknown.Field, Message: "isn't a field that can be set here"})
	}
	if kind, ok := errors.AsType[*strictjson.KindError](err); ok {
		return problem.InvalidFields(problem.CodeInvalid, api.FieldError{Field: kind.Field, Message: kind.Allowed})
	}
	return &RefusedError{Status: http.StatusBadRequest, Code: problem.CodeBadJSON, Detail: err.Error()}
}
