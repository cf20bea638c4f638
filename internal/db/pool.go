package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultMaxConns = 10
	rollbackTimeout = 5 * time.Second
)

// Open makes a pool. It doesn't wait for the database: use the pool's Ping to know whether it answers.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	if cfg.Conn == nil {
		return nil, errNoSettings
	}
	// pgxpool insists on a configuration made by its own parser; everything in it is replaced.
	pc, err := pgxpool.ParseConfig("host=localhost sslmode=disable")
	if err != nil {
		return nil, errors.New("open database pool: the PG… environment variables can't be used")
	}
	pc.ConnConfig = connConfig(cfg)
	guard := &guard{log: orDiscard(cfg.Logger), limit: answerLimit(pc.ConnConfig.RuntimeParams["statement_timeout"])}
	pc.ConnConfig.Tracer = guard
	pc.ShouldPing = guard.probe
	pc.PingTimeout = pingTimeout
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
