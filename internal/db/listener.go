package db

import (
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	defaultPing        = 10 * time.Second
	defaultPingAnswer  = 10 * time.Second
	listenConnectLimit = time.Minute // several addresses, each with a limit of its own
	listenCloseTimeout = time.Second
	listenBackoffMin   = 250 * time.Millisecond
	listenBackoffMax   = 15 * time.Second
	listenHealthyAfter = 10 * time.Second
)

// A connection that is dead without a word is found after silence for one Ping, a ping that was answered at the last
// moment, and no echo: within 30 s.
const _ = uint(30*time.Second - defaultPing - 2*defaultPingAnswer)

var (
	errNoEcho   = errors.New("a notification to itself didn't arrive")
	errNotHeard = errors.New("listener not hearing itself: is there a transaction pooler in between, or is it another database? " +
		"set ORCH_DATABASE_LISTEN_URL to a direct connection to the database of ORCH_DATABASE_URL")
	errConnectTimeout = errors.New("connecting took too long")
)

// ListenerConfig of a Listener. The callbacks run on the goroutine of Run: they must not block.
type ListenerConfig struct {
	// Connect opens a connection past any transaction pooler, Sender one the way that those connect who notify
	// (nil: Connect too). Both bound themselves, as this package's Connect does.
	Connect, Sender func(ctx context.Context) (*pgx.Conn, error)
	Channels        []string
	OnNotify        func(channel, payload string)
	OnConnect       func()        // after each (re)connect: notifications may have been missed, look at everything
	Ping            time.Duration // how often the connection is tried; 10 s when zero
	Answer          time.Duration // bounds each answer of the server; 10 s when zero
	Logger          *slog.Logger
}

// Listener holds one connection that LISTENs, for as long as Run runs. See the package's text on notifications.
type Listener struct {
	cfg       ListenerConfig
	log       *slog.Logger
	queue     notifyWatch
	connected atomic.Bool
}

// NewListener makes a Listener that does nothing until Run.
func NewListener(cfg ListenerConfig) *Listener {
	if cfg.Ping <= 0 {
		cfg.Ping = defaultPing
	}
	if cfg.Answer <= 0 {
		cfg.Answer = defaultPingAnswer
	}
	if cfg.Sender == nil {
		cfg.Sender = cfg.Connect
	}
	if cfg.OnNotify == nil {
		cfg.OnNotify = func(string, string) {}
	}
	if cfg.OnConnect == nil {
		cfg.OnConnect = func() {}
	}
	log := orDiscard(cfg.Logger)
	return &Listener{cfg: cfg, log: log, queue: notifyWatch{log: log}}
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
			l.log.LogAttrs(ctx, levelOf(err), "not listening for notifications, polling goes on", slog.String("code", code), whyOf(err))
		}
		if !wait(ctx, jitter(pause)) {
			return nil
		}
		pause = min(2*pause, listenBackoffMax)
	}
}

// whyOf leaves the variable's name out that an error to connect has: a listener may use another one.
func whyOf(err error) slog.Attr {
	if unusable, ok := errors.AsType[*UnusableError](err); ok {
		return slog.String("remedy", remedyOf(Code(unusable)))
	}
	return slog.Any("error", err)
}

// levelOf is louder for what doesn't go away by itself.
func levelOf(err error) slog.Level {
	if Unreachable(err) && !errors.Is(err, errNotifyFull) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// dial returns as soon as ctx is done or it took too long, whatever connect does then.
func dial(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (*pgx.Conn, error) {
	type result struct {
		conn *pgx.Conn
		err  error
	}
	done := make(chan result, 1)
	ctx, cancel := context.WithTimeoutCause(ctx, listenConnectLimit, errConnectTimeout)
	defer cancel()
	go func() {
		conn, err := connect(ctx)
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
