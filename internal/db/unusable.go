package db

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// UnusableError says that no connection to the database can be made, and what to do about it. The driver's own text names
// user, database, host and port, any of which is a part of the password when that holds an unescaped delimiter: it is
// within reach of errors.As, and in no text.
type UnusableError struct {
	socket bool // it was looked for on a socket file, as the private one is
	err    error
}

// Error names the code and the remedy.
func (e *UnusableError) Error() string {
	text := "the database of ORCH_DATABASE_URL can't be used: "
	if e.socket {
		text = "the database can't be used: "
	}
	code := Code(e.err)
	if remedy := remedyOf(code); remedy != "" {
		return text + code + ": " + remedy
	}
	return text + code
}

// Unwrap returns the driver's error.
func (e *UnusableError) Unwrap() error { return e.err }

func remedyOf(code string) string {
	switch code {
	case CodeUnreachable, CodeTimeout:
		return "is it up, can it be reached from here?"
	case CodeAuth:
		return "correct user or password, or let this user in"
	case CodeMissing:
		return "create it or correct the name"
	case CodeDenied:
		return "let this user connect to it"
	case CodeNoResource:
		return "it has no room for another connection"
	case CodeReadOnly:
		return "it accepts no writes: name the primary"
	case CodeStartup:
		return "a pooler refuses a start-up parameter: have it ignore statement_timeout and idle_in_transaction_session_timeout"
	}
	return ""
}

// Public is err in words that may be shown to everybody and logged, when it comes from an attempt to connect; anything
// else is returned as it is. A pool's errors go through it before somebody reads them; Connect's have.
func Public(err error) error {
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	if _, is := err.(*UnusableError); is || !ok { //nolint:errorlint // one further down leaves the text around it
		return err
	}
	return &UnusableError{socket: connect.Config != nil && strings.HasPrefix(connect.Config.Host, "/"), err: err}
}

// LogHandler has next log Public of every error.
func LogHandler(next slog.Handler) slog.Handler { return publicHandler{next} }

type publicHandler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h publicHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h publicHandler) Handle(ctx context.Context, r slog.Record) error {
	public := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		public.AddAttrs(publicAttr(a))
		return true
	})
	return h.next.Handle(ctx, public)
}

// WithAttrs implements slog.Handler.
func (h publicHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	public := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		public[i] = publicAttr(a)
	}
	return publicHandler{h.next.WithAttrs(public)}
}

// WithGroup implements slog.Handler.
func (h publicHandler) WithGroup(name string) slog.Handler {
	return publicHandler{h.next.WithGroup(name)}
}

func publicAttr(a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	if err, ok := a.Value.Any().(error); ok {
		return slog.Any(a.Key, Public(err))
	}
	return a
}

// namelessConn is a connection whose errors don't say between which addresses it was.
type namelessConn struct{ net.Conn }

// NetConn is the connection itself.
func (c namelessConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c namelessConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, nameless(err)
}

// Write implements net.Conn.
func (c namelessConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, nameless(err)
}

func nameless(err error) error {
	if op, ok := err.(*net.OpError); ok { //nolint:errorlint // as package net returns it
		return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
	}
	return err
}
