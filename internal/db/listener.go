package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	defaultPing          = 10 * time.Second
	listenConnectTimeout = 10 * time.Second
	listenCloseTimeout   = time.Second
	listenBackoffMin     = 250 * time.Millisecond
	listenBackoffMax     = 15 * time.Second
	listenHealthyAfter   = 10 * time.Second
	listenStatementMin   = time.Second
)

var (
	errNoEcho         = errors.New("a notification to itself didn't arrive")
	errConnectTimeout = errors.New("connecting took too long")
)

// ListenerConfig of a Listener. The callbacks run on the goroutine of Run: they must not block.
type ListenerConfig struct {
	Connect   func(ctx context.Context) (*pgx.Conn, error) // a connection of its own, past any transaction pooler
	Channels  []string
	OnNotify  func(channel, payload string)
	OnConnect func()        // after each (re)connect: notifications may have been missed, look at everything
	Ping      time.Duration // silence after which the connection is tried; 10 s when zero
	Logger    *slog.Logger
}

// Listener holds one connection that LISTENs, for as long as Run runs. Notifications are hints: whoever relies on
// them polls as well, so that a Listener without a connection costs time and nothing else.
//
// A connection whose peer is gone without a word (a firewall forgot it, a machine lost power) looks idle for ever.
// After each Ping of silence the Listener therefore notifies itself on a channel of its own; when neither that nor
// anything else arrives within another Ping, it connects anew. With the default that takes at most 20 s.
type Listener struct {
	cfg       ListenerConfig
	log       *slog.Logger
	connected atomic.Bool
}

// NewListener makes a Listener that does nothing until Run.
func NewListener(cfg ListenerConfig) *Listener {
	if cfg.Ping <= 0 {
		cfg.Ping = defaultPing
	}
	if cfg.OnNotify == nil {
		cfg.OnNotify = func(string, string) {}
	}
	if cfg.OnConnect == nil {
		cfg.OnConnect = func() {}
	}
	return &Listener{cfg: cfg, log: orDiscard(cfg.Logger)}
}

// Connected says whether notifications arrive right now.
func (l *Listener) Connected() bool { return l.connected.Load() }

// Run listens until ctx is done, and connects again whenever the connection is lost. It calls ready after its first
// attempt, also when that failed.
func (l *Listener) Run(ctx context.Context, ready func()) error {
	pause, lastCode := listenBackoffMin, ""
	for {
		healthy, err := l.session(ctx, ready)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the error is the stop's own
		}
		ready()
		if healthy >= listenHealthyAfter {
			pause, lastCode = listenBackoffMin, ""
		}
		if code := Code(err); code != lastCode { // an outage is one line, not one for each attempt
			lastCode = code
			l.log.WarnContext(ctx, "not listening for notifications, polling goes on", slog.String("code", code), slog.Any("error", err))
		}
		if !wait(ctx, jitter(pause)) {
			return nil
		}
		pause = min(2*pause, listenBackoffMax)
	}
}

// session is one connection, from dialling to its loss; healthy is how long it listened.
func (l *Listener) session(ctx context.Context, ready func()) (healthy time.Duration, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect listener: %w", err)
	}
	defer closeConn(ctx, conn)
	echo := "orch_ping_" + rand.Text()
	for _, channel := range append([]string{echo}, l.cfg.Channels...) {
		if err := l.exec(ctx, conn, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return 0, fmt.Errorf("listen: %w", err)
		}
	}
	begin := time.Now()
	l.connected.Store(true)
	defer l.connected.Store(false)
	l.log.InfoContext(ctx, "listening for notifications")
	ready()
	l.cfg.OnConnect()
	err = l.receive(ctx, conn, echo)
	return time.Since(begin), err
}

// connect returns as soon as ctx is done, whatever Connect does then.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	type result struct {
		conn *pgx.Conn
		err  error
	}
	done := make(chan result, 1)
	dialCtx, cancel := context.WithTimeoutCause(ctx, listenConnectTimeout, errConnectTimeout)
	go func() {
		defer cancel()
		conn, err := l.cfg.Connect(dialCtx)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() { // a connection that comes too late belongs to nobody
			if r := <-done; r.conn != nil {
				closeConn(ctx, r.conn)
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// receive passes notifications on until the connection or ctx ends.
func (l *Listener) receive(ctx context.Context, conn *pgx.Conn, echo string) error {
	pinged := false
	for {
		notification, err := waitNotification(ctx, conn, l.cfg.Ping)
		switch {
		case err == nil:
			pinged = false // whatever arrived proves that notifications do
			if notification.Channel != echo {
				l.cfg.OnNotify(notification.Channel, notification.Payload)
			}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed():
			return fmt.Errorf("wait for notifications: %w", err)
		case pinged:
			return errNoEcho
		default:
			if err := l.exec(ctx, conn, "select pg_notify($1, '')", echo); err != nil {
				return fmt.Errorf("ping listener: %w", err)
			}
			pinged = true
		}
	}
}

type notification struct{ Channel, Payload string }

func waitNotification(ctx context.Context, conn *pgx.Conn, limit time.Duration) (notification, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return notification{}, err
	}
	return notification{n.Channel, n.Payload}, nil
}

func (l *Listener) exec(ctx context.Context, conn *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, max(l.cfg.Ping, listenStatementMin))
	defer cancel()
	// A connection that listens has no use for prepared statements.
	_, err := conn.Exec(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	return err
}

// closeConn says goodbye to the server if that takes no time, and closes the socket in any case.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenCloseTimeout)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
}

// jitter spreads the attempts of many processes that lost the same server: half of d to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + mathrand.N(d/2) //nolint:gosec // timing, not secrecy
}

// wait is false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
