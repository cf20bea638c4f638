package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

const (
	defaultStatementTimeout = 30 * time.Second
	defaultIdleTimeout      = time.Minute
	defaultConnectTimeout   = 10 * time.Second
	defaultApplicationName  = "orch"

	// A peer that acknowledges nothing for this long is gone, whether something was sent to it or only a keepalive.
	peerTimeout       = 30 * time.Second
	keepaliveIdle     = 10 * time.Second
	keepaliveInterval = 5 * time.Second
	keepaliveCount    = 4
)

// ErrReadOnly says that the server accepts no writes: a standby, or one that is being switched over.
var ErrReadOnly = errors.New("the database accepts no writes")

// Config says how Open and Connect connect. Zero values mean 10 connections, 30 s per statement, 60 s between two
// statements of a transaction, 10 s to connect.
type Config struct {
	Conn             *pgx.ConnConfig // where to; copied
	MaxConns         int32           // Open's
	ApplicationName  string          // seen in pg_stat_activity; "orch" when empty
	StatementTimeout time.Duration   // bounds each statement, enforced by the server; negative = none
	IdleTimeout      time.Duration   // ends a session that leaves a transaction open and says nothing; negative = none
	ConnectTimeout   time.Duration   // bounds one attempt to connect to one address
	Logger           *slog.Logger
}

// Connect opens one connection, with the same settings as those of a pool.
func Connect(ctx context.Context, cfg Config) (*pgx.Conn, error) {
	if cfg.Conn == nil {
		return nil, errNoSettings
	}
	conn, err := pgx.ConnectConfig(ctx, connConfig(cfg))
	return conn, Public(err)
}

var errNoSettings = errors.New("connect to the database: no connection settings")

func connConfig(cfg Config) *pgx.ConnConfig {
	conn := cfg.Conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = map[string]string{}
	}
	// What the operator put into the URL wins.
	setDefault(conn.RuntimeParams, "statement_timeout", milliseconds(cfg.StatementTimeout, defaultStatementTimeout))
	setDefault(conn.RuntimeParams, "idle_in_transaction_session_timeout", milliseconds(cfg.IdleTimeout, defaultIdleTimeout))
	name := cfg.ApplicationName
	if name == "" {
		name = defaultApplicationName
	}
	setDefault(conn.RuntimeParams, "application_name", name)
	conn.ConnectTimeout = cfg.ConnectTimeout
	if conn.ConnectTimeout <= 0 {
		conn.ConnectTimeout = defaultConnectTimeout
	}
	conn.LookupFunc = lookupWithin(conn.LookupFunc, conn.ConnectTimeout)
	conn.DialFunc = dialWatched(conn.DialFunc)
	if conn.ValidateConnect == nil {
		conn.ValidateConnect = refuseReadOnly
	}
	return conn
}

func setDefault(params map[string]string, key, value string) {
	if _, ok := params[key]; !ok {
		params[key] = value
	}
}

func milliseconds(d, whenZero time.Duration) string {
	if d == 0 {
		d = whenZero
	}
	return strconv.FormatInt(max(d, 0).Milliseconds(), 10)
}

// lookupWithin bounds the resolver, which the driver's own limit leaves out.
func lookupWithin(lookup pgconn.LookupFunc, limit time.Duration) pgconn.LookupFunc {
	return func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errConnectTimeout)
		defer cancel()
		return lookup(ctx, host)
	}
}

// dialWatched lets the kernel end a connection whose peer is gone: by itself it takes two hours to notice on an idle
// one, and a quarter of an hour with a statement on its way.
func dialWatched(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return namelessConn{conn}, nil // a socket file: the kernel tells at once
		}
		if err := watchPeer(tcp); err != nil {
			return nil, errors.Join(fmt.Errorf("set keepalive: %w", err), conn.Close())
		}
		return namelessConn{conn}, nil
	}
}

func watchPeer(conn *net.TCPConn) error {
	err := conn.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval, Count: keepaliveCount,
	})
	if err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerTimeout.Milliseconds()))
	})
	return errors.Join(err, inner)
}

// refuseReadOnly keeps away from a standby; with several hosts in the URL the next one is tried.
func refuseReadOnly(ctx context.Context, conn *pgconn.PgConn) error {
	const query = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean"
	results, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return err
	}
	if len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == "t" {
		return ErrReadOnly
	}
	return nil
}
