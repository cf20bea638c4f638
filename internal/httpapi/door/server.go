// Package door serves a handler on a listener, with a bound on every phase of a request, and stops several together.
package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 20 * time.Second
	writeTimeout  = 40 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// Server is one listener and the server behind it.
type Server struct {
	http     *http.Server
	listener net.Listener
}

// New puts a handler behind a listener. Nothing is served before Serve.
func New(listener net.Listener, handler http.Handler, log *slog.Logger) *Server {
	return &Server{listener: listener, http: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Serve serves until Shutdown; that is no error.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Close gives up the listener of a server that wasn't served.
func (s *Server) Close() error { return s.listener.Close() } //nolint:wrapcheck // the caller says what it gave up

// Shutdown lets requests finish, then cuts what is left after timeout. What is left is no error of the stop. It is done
// although ctx is over.
func Shutdown(ctx context.Context, servers []*Server, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var group errgroup.Group
	for _, server := range servers {
		group.Go(func() error { return server.shutdown(ctx) })
	}
	return group.Wait() //nolint:wrapcheck // wrapped by shutdown
}

func (s *Server) shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving on %s: %w", s.listener.Addr(), err)
	}
	return nil
}
