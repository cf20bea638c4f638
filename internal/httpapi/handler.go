package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"orch/api"
	"orch/internal/httpapi/form"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/problem"
	"orch/internal/httpapi/queueview"
	"orch/internal/httpapi/snapshot"
)

const (
	defaultLimit = 50
	maxLimit     = 200
	maxKey       = 200 // of a task's key and of a repository's name, in bytes
)

// handlers implements the generated server interface.
type handlers struct {
	answer    *problem.Answerer
	log       *slog.Logger
	tasks     Tasks
	jobs      Jobs
	runs      Runs
	agents    Agents
	metrics   http.Handler
	queue     *snapshot.Cache[queueview.Encoded]
	checks    *snapshot.Cache[[]api.Check]
	streams   chan struct{} // one slot for each stream that may be open
	heartbeat time.Duration
	deadline  time.Duration
	stop      <-chan struct{} // closed when the server begins to stop
}

var _ api.StrictServerInterface = (*handlers)(nil)

func newHandlers(cfg Config, stop <-chan struct{}) *handlers {
	builder := &queueview.Builder{Source: cfg.Queue.Queue, Code: cfg.ErrorCode, Log: cfg.Logger}
	return &handlers{
		answer:    &problem.Answerer{Log: cfg.Logger, Code: cfg.ErrorCode},
		log:       cfg.Logger,
		tasks:     cfg.Tasks,
		jobs:      cfg.Jobs,
		runs:      cfg.Runs,
		agents:    cfg.Agents,
		metrics:   cfg.Metrics,
		queue:     &snapshot.Cache[queueview.Encoded]{Build: builder.Build, Fresh: cfg.QueueEvery, Timeout: cfg.BuildTimeout, Overlap: true},
		checks:    &snapshot.Cache[[]api.Check]{Build: checksOf(cfg.Readiness), Fresh: time.Second, Timeout: cfg.BuildTimeout},
		streams:   make(chan struct{}, cfg.MaxStreams),
		heartbeat: cfg.StreamHeartbeat,
		deadline:  cfg.RequestTimeout,
		stop:      stop,
	}
}

func checksOf(readiness Readiness) func(context.Context) ([]api.Check, error) {
	return func(ctx context.Context) ([]api.Check, error) { return readiness.Check(ctx), nil }
}

func (h *handlers) close() {
	h.queue.Close()
	h.checks.Close()
}

func (h *handlers) isStopping() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// router builds the routes and the chain in front of them for one door.
func (h *handlers) router(by front.Door, admission func(http.Handler) http.Handler) http.Handler {
	mux := chi.NewRouter()
	mux.Use(front.Identify(by), front.AccessLog(h.log), front.Recover(h.log, h.panicked), front.Headers, admission)
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		h.answer.Write(w, r, &RefusedError{Status: http.StatusNotFound, Code: problem.CodeNotFound, Detail: "there is no such path"})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allowed := allowedMethods(mux, r)
		w.Header().Set("Allow", allowed)
		h.answer.Write(w, r, &RefusedError{Status: http.StatusMethodNotAllowed, Code: problem.CodeBadMethod, Detail: "this path takes " + allowed})
	})
	strict := api.NewStrictHandlerWithOptions(h, []api.StrictMiddlewareFunc{h.bounded}, api.StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  h.answer.Write,
		ResponseErrorHandlerFunc: h.answerError,
	})
	return api.HandlerWithOptions(strict, api.ChiServerOptions{
		BaseRouter:       mux,
		Middlewares:      []api.MiddlewareFunc{h.strictBodies},
		ErrorHandlerFunc: h.answer.Write,
	})
}

func allowedMethods(routes chi.Routes, r *http.Request) string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	return join(allowed)
}

// bounded gives every request but a followed log a deadline. One that was answered ends an outage of the database.
func (h *handlers) bounded(next api.StrictHandlerFunc, operation string) api.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if log, ok := request.(api.GetRunLogRequestObject); ok && value(log.Params.Follow) {
			return next(ctx, w, r, request)
		}
		ctx, cancel := context.WithTimeout(ctx, h.deadline)
		defer cancel()
		answer, err := next(ctx, w, r, request)
		if err == nil && asksDatabase(operation) {
			h.answer.Answered(ctx)
		}
		return answer, err
	}
}

// asksDatabase is false for what is answered without it, and so says nothing about it.
func asksDatabase(operation string) bool {
	switch operation {
	case "GetHealth", "GetReadiness", "GetQueue", "GetMetrics":
		return false
	}
	return true
}

// sendError is a failure to send an answer that had begun: nothing more can be said to the client.
type sendError struct{ err error }

// Error returns the cause's text.
func (e *sendError) Error() string { return "send the answer: " + e.err.Error() }

// Unwrap returns the cause.
func (e *sendError) Unwrap() error { return e.err }

func (h *handlers) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if _, ok := errors.AsType[*sendError](err); ok {
		h.log.DebugContext(r.Context(), "answer not sent", slog.String("request_id", front.RequestID(r.Context())), slog.Any("error", err))
		return
	}
	h.answer.Write(w, r, err)
}

// panicked answers in place of a handler that panicked.
func (h *handlers) panicked(w http.ResponseWriter, r *http.Request) {
	h.answer.Write(w, r, problem.Internal(nil))
}

// refuse answers in place of the handlers for a request that isn't let in.
func (h *handlers) refuse(w http.ResponseWriter, r *http.Request, status int, code, detail string) {
	h.answer.Write(w, r, &RefusedError{Status: status, Code: code, Detail: detail})
}

// actor is how events name who sent the request.
func actor(ctx context.Context) string {
	if front.CameBy(ctx) == front.Socket {
		return "cli"
	}
	return "api"
}

func value[T any](pointer *T) T {
	if pointer == nil {
		var none T
		return none
	}
	return *pointer
}

func join(words []string) string { return strings.Join(words, ", ") }

// page reads limit and cursor of a list.
func page(limit *int, cursor *string) (size int, after int64, err error) {
	size = defaultLimit
	if limit != nil {
		size = *limit
	}
	if size < 1 || size > maxLimit {
		return 0, 0, problem.BadParameter("limit", fmt.Sprintf("must be between 1 and %d", maxLimit))
	}
	if cursor == nil || *cursor == "" {
		return size, 0, nil
	}
	after, ok := form.Cursor(*cursor)
	if !ok {
		return 0, 0, badCursor()
	}
	return size, after, nil
}

func badCursor() error {
	return problem.BadParameter("cursor", "must be the next_cursor of an earlier answer")
}

// cut shortens items, which were asked for with one more than a page holds, to a page.
func cut[T any](items []T, size int, id func(T) int64) (page []T, next *string) {
	if len(items) <= size {
		return orEmpty(items), nil
	}
	page = items[:size]
	return page, new(form.CursorAt(id(page[size-1])))
}

// checkKey refuses what can't be a task's key before the database is asked, and doesn't repeat it.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !form.Readable(key) {
		return NotFound("such task")
	}
	return nil
}

// checkFilter refuses what can't be the value of a parameter that selects the items of a list.
func checkFilter(name, text string) error {
	if len(text) > maxKey || !form.Storable(text) {
		return problem.BadParameter(name, fmt.Sprintf("must be UTF-8 text without NUL, of at most %d bytes", maxKey))
	}
	return nil
}
