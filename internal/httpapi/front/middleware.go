package front

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	doorKey
)

// Door is where a request came in.
type Door string

// The doors of a server.
const (
	TCP    Door = "tcp"
	Socket Door = "socket"
)

// RequestID is the id of the request that ctx belongs to, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string) // no id is the empty id
	return id
}

// CameBy is the door of the request that ctx belongs to.
func CameBy(ctx context.Context) Door {
	d, ok := ctx.Value(doorKey).(Door)
	if !ok {
		return TCP // who can't show that it is the operator isn't
	}
	return d
}

// Identify gives the request its id, the client's own if it sent a decent one, and its door.
func Identify(by Door) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get("X-Request-Id")
			if !decentID(id) {
				id = strings.ToLower(rand.Text()[:16])
			}
			w.Header().Set("X-Request-Id", id)
			ctx := context.WithValue(r.Context(), requestIDKey, id)
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, doorKey, by)))
		})
	}
}

func decentID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Headers forbids browsers everything: nothing here is a page.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// recorder remembers what was answered. Unwrap lets http.ResponseController reach the connection.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap returns the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts what was written.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err //nolint:wrapcheck // a writer returns what the writer below says
}

// AccessLog notes each request at debug level.
func AccessLog(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := &recorder{ResponseWriter: w}
			defer noteRequest(r.Context(), log, r, rec, time.Now())
			next.ServeHTTP(rec, r)
		})
	}
}

func noteRequest(ctx context.Context, log *slog.Logger, r *http.Request, rec *recorder, started time.Time) {
	log.DebugContext(ctx, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", time.Since(started)),
		slog.String("door", string(CameBy(ctx))), slog.String("request_id", RequestID(ctx)))
}

// Recover calls fail, which answers, for a handler that panics. If the handler had begun to answer, the connection is
// cut instead, so that the client doesn't take half an answer for a whole one.
func Recover(log *slog.Logger, fail http.HandlerFunc) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := &recorder{ResponseWriter: w}
			defer recovered(r.Context(), log, rec, r, fail)
			next.ServeHTTP(rec, r)
		})
	}
}

// recovered is what is deferred, so that recover works in it.
func recovered(ctx context.Context, log *slog.Logger, rec *recorder, r *http.Request, fail http.HandlerFunc) {
	caught := recover()
	if caught == nil {
		return
	}
	if caught == http.ErrAbortHandler { //nolint:errorlint // the value itself is what net/http looks for
		panic(caught)
	}
	log.ErrorContext(ctx, "handler panicked", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("request_id", RequestID(ctx)), slog.Any("panic", caught), slog.String("stack", string(debug.Stack())))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	fail(rec, r)
}
