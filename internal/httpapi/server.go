package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"orch/api"
	"orch/internal/httpapi/door"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/socket"
)

var (
	// ErrTokenRequired says that an address others can reach needs a token.
	ErrTokenRequired = errors.New("an address other than loopback needs ORCH_API_TOKEN")
	// ErrServerRunning says that another server answers on the socket.
	ErrServerRunning = socket.ErrServerRunning
)

// Config is what a Server works with. Zero durations and counts mean the default.
type Config struct {
	Addr        string // TCP address, e.g. 127.0.0.1:8047; empty = none
	SocketPath  string // unix socket; empty = none
	Token       string // bearer token; empty is allowed on loopback only
	QueuePublic bool   // GET /queue and GET /metrics need no token

	Tasks     Tasks
	Jobs      Jobs
	Runs      Runs
	Agents    Agents
	Queue     QueueSource
	Readiness Readiness
	Metrics   http.Handler // answers GET /metrics, which isn't there when it is nil
	// ErrorCode names an error of what stands behind in a word, e.g. database_unreachable; nil = this package's own codes.
	ErrorCode func(error) string
	Logger    *slog.Logger

	QueueEvery      time.Duration // age up to which a queue snapshot counts as fresh (1 s)
	BuildTimeout    time.Duration // of one queue snapshot or readiness check (2 s)
	RequestTimeout  time.Duration // of one request that isn't a stream (15 s)
	StreamHeartbeat time.Duration // between comments on a silent stream (15 s)
	MaxStreams      int           // logs that may be followed at once (100)
	StopTimeout     time.Duration // for requests that are under way at a stop (5 s)
}

func (c Config) withDefaults() Config {
	c.QueueEvery = orDefault(c.QueueEvery, time.Second)
	c.BuildTimeout = orDefault(c.BuildTimeout, 2*time.Second)
	c.RequestTimeout = orDefault(c.RequestTimeout, 15*time.Second)
	c.StreamHeartbeat = orDefault(c.StreamHeartbeat, 15*time.Second)
	c.StopTimeout = orDefault(c.StopTimeout, 5*time.Second)
	c.MaxStreams = orDefault(c.MaxStreams, 100)
	if c.ErrorCode == nil {
		c.ErrorCode = errorCode
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T time.Duration | int](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

func (c Config) validate() error {
	switch {
	case c.Addr == "" && c.SocketPath == "":
		return errors.New("neither an address nor a socket to listen on")
	case c.Addr != "" && c.Token == "" && !front.Loopback(c.Addr):
		return fmt.Errorf("listen on %s: %w", c.Addr, ErrTokenRequired)
	case c.Tasks == nil || c.Jobs == nil || c.Runs == nil || c.Agents == nil || c.Queue == nil || c.Readiness == nil:
		return errors.New("a part that the routes need is missing")
	case min(c.QueueEvery, c.BuildTimeout, c.RequestTimeout, c.StreamHeartbeat, c.StopTimeout) < 0 || c.MaxStreams < 0:
		return errors.New("durations and counts must not be negative")
	}
	return nil
}

// Server serves the API on a TCP address, on a unix socket, or on both.
type Server struct {
	cfg      Config
	mu       sync.Mutex
	addr     net.Addr
	handlers *handlers // while it runs
}

// New checks the configuration. Nothing listens before Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("http server: %w", err)
	}
	return &Server{cfg: cfg.withDefaults()}, nil
}

// Addr is the TCP address that is being listened on, empty while there is none. It tells a port that was chosen by
// the system.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil {
		return ""
	}
	return s.addr.String()
}

// errNotRunning says that a server that doesn't run takes no snapshots.
var errNotRunning = errors.New("the server doesn't run")

// Snapshot is what GET /queue shows, out of the same cache. An error says that there never was one.
func (s *Server) Snapshot(ctx context.Context) (api.Queue, error) {
	s.mu.Lock()
	h := s.handlers
	s.mu.Unlock()
	if h == nil {
		return api.Queue{}, errNotRunning
	}
	encoded, err := h.queue.Get(ctx)
	return encoded.Queue, err
}

// Run listens, calls ready, and serves until ctx ends. Then streams are cut at once, other requests have StopTimeout.
func (s *Server) Run(ctx context.Context, ready func()) error {
	stop := make(chan struct{})
	h := newHandlers(s.cfg, stop)
	defer h.close()
	s.setHandlers(h)
	defer s.setHandlers(nil)
	servers, err := s.listen(ctx, h)
	if err != nil {
		return err
	}
	defer s.setAddr(nil)
	group, groupCtx := errgroup.WithContext(ctx)
	for _, server := range servers {
		group.Go(server.Serve)
	}
	group.Go(func() error {
		<-groupCtx.Done()
		close(stop)
		return door.Shutdown(groupCtx, servers, s.cfg.StopTimeout)
	})
	ready()
	return group.Wait()
}

// listen opens the doors: the socket first, since it tells whether another server is at work here.
func (s *Server) listen(ctx context.Context, h *handlers) (servers []*door.Server, err error) {
	defer func() {
		if err != nil {
			for _, server := range servers {
				err = errors.Join(err, server.Close())
			}
		}
	}()
	if s.cfg.SocketPath != "" {
		listener, err := socket.Listen(ctx, s.cfg.SocketPath)
		if err != nil {
			return servers, err
		}
		open := func(next http.Handler) http.Handler { return next }
		servers = append(servers, door.New(listener, h.router(front.Socket, open), s.cfg.Logger))
	}
	if s.cfg.Addr != "" {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", s.cfg.Addr)
		if err != nil {
			return servers, fmt.Errorf("listen on %s (ORCH_HTTP_ADDR): %w", s.cfg.Addr, err)
		}
		s.setAddr(listener.Addr())
		guard := front.NewGuard(s.cfg.Addr, s.cfg.Token, s.cfg.QueuePublic, h.refuse)
		servers = append(servers, door.New(listener, h.router(front.TCP, guard.Wrap), s.cfg.Logger))
	}
	return servers, nil
}

func (s *Server) setHandlers(h *handlers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = h
}

func (s *Server) setAddr(addr net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = addr
}
