package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultMaxConns         = 10
	defaultStatementTimeout = 30 * time.Second
	defaultConnectTimeout   = 10 * time.Second
	defaultApplicationName  = "orch"

	rollbackTimeout = 5 * time.Second
	resetInterval   = time.Second
)

// ErrReadOnly says that the server accepts no writes: a standby, or one that is being switched over.
var ErrReadOnly = errors.New("the database accepts no writes")

// Config says how Open connects. Zero values mean 10 connections, 30 s per statement, 10 s to connect.
type Config struct {
	Conn             *pgx.ConnConfig // where to; copied
	MaxConns         int32
	ApplicationName  string        // seen in pg_stat_activity; "orch" when empty
	StatementTimeout time.Duration // bounds each statement, enforced by the server; negative = none
	ConnectTimeout   time.Duration // bounds one attempt to connect
	Logger           *slog.Logger
}

// Open makes a pool. It doesn't wait for the database: use the pool's Ping to know whether it answers.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	if cfg.Conn == nil {
		return nil, errors.New("open database pool: no connection settings")
	}
	// pgxpool insists on a configuration made by its own parser; everything in it is replaced.
	pc, err := pgxpool.ParseConfig("host=localhost sslmode=disable")
	if err != nil {
		return nil, errors.New("open database pool: the PG… environment variables can't be used")
	}
	guard := &readOnlyGuard{log: orDiscard(cfg.Logger)}
	pc.ConnConfig = connConfig(cfg)
	pc.ConnConfig.Tracer = guard
	if pc.ConnConfig.ValidateConnect == nil {
		pc.ConnConfig.ValidateConnect = refuseReadOnly
	}
	pc.MaxConns = cfg.MaxConns
	if pc.MaxConns <= 0 {
		pc.MaxConns = defaultMaxConns
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	guard.pool.Store(pool)
	return pool, nil
}

func connConfig(cfg Config) *pgx.ConnConfig {
	conn := cfg.Conn.Copy()
	if conn.RuntimeParams == nil {
		conn.RuntimeParams = map[string]string{}
	}
	conn.ConnectTimeout = cfg.ConnectTimeout
	if conn.ConnectTimeout <= 0 {
		conn.ConnectTimeout = defaultConnectTimeout
	}
	timeout := cfg.StatementTimeout
	if timeout == 0 {
		timeout = defaultStatementTimeout
	}
	// What the operator put into the URL wins.
	setDefault(conn.RuntimeParams, "statement_timeout", strconv.FormatInt(max(timeout, 0).Milliseconds(), 10))
	name := cfg.ApplicationName
	if name == "" {
		name = defaultApplicationName
	}
	setDefault(conn.RuntimeParams, "application_name", name)
	return conn
}

func setDefault(params map[string]string, key, value string) {
	if _, ok := params[key]; !ok {
		params[key] = value
	}
}

// refuseReadOnly keeps connections to a standby out of the pool; with several hosts in the URL the next one is tried.
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

// readOnlyGuard drops the pool's connections once a server that accepted writes turns read-only under them.
type readOnlyGuard struct {
	log   *slog.Logger
	pool  atomic.Pointer[pgxpool.Pool]
	reset atomic.Int64 // monotonic-free unix nanoseconds of the last reset: one failover, one reset
}

// TraceQueryStart implements pgx.QueryTracer.
func (g *readOnlyGuard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (g *readOnlyGuard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.Err == nil || Code(data.Err) != CodeReadOnly {
		return
	}
	pool := g.pool.Load()
	now, last := time.Now().UnixNano(), g.reset.Load()
	if pool == nil || now-last < int64(resetInterval) || !g.reset.CompareAndSwap(last, now) {
		return
	}
	g.log.WarnContext(ctx, "database turned read-only, dropping its connections")
	pool.Reset()
}

// InTx runs fn in a transaction and commits it, or rolls it back when fn fails or panics. An error of fn is returned
// as it is; after an error of the commit itself the outcome may be unknown.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	done := false
	defer func() {
		if done {
			return
		}
		// The caller's context may be over; the connection should go back clean all the same.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), rollbackTimeout, errRollback)
		defer cancel()
		_ = tx.Rollback(ctx) // on failure the pool drops the connection, and the server rolls back
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

var errRollback = errors.New("rollback took too long")

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
