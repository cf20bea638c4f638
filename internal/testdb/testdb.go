package testdb

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The cluster of this test process, booted by the first test that needs it.
var (
	boot    = sync.OnceValues(start)
	counter atomic.Int64
)

// New returns a pool on a migrated database of the test's own. Both go at the test's end.
func New(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig("sslmode=disable")
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	cfg.ConnConfig = create(tb, template)
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("testdb: open a pool: %v", err)
	}
	tb.Cleanup(func() { closePool(tb, pool) })
	// The template's migrations ran once: without this, all databases would claim to be one and the same.
	if _, err := pool.Exec(tb.Context(), "update instance set id = gen_random_uuid()"); err != nil {
		tb.Fatalf("testdb: name the instance: %v", err)
	}
	return pool
}

// Empty returns how to connect to an empty, unmigrated database of the test's own, which goes at the test's end.
func Empty(tb testing.TB) *pgx.ConnConfig {
	tb.Helper()
	return create(tb, "template0")
}

// ConnConfig returns a copy of how the pool connects, for a second pool or a listener on the same database.
func ConnConfig(pool *pgxpool.Pool) *pgx.ConnConfig {
	return pool.Config().ConnConfig.Copy()
}

// URL returns the connection string of a database, for another process.
func URL(cfg *pgx.ConnConfig) string {
	query := url.Values{"host": {cfg.Host}, "port": {strconv.Itoa(int(cfg.Port))}, "user": {cfg.User}, "sslmode": {"disable"}}
	return "postgres:///" + url.PathEscape(cfg.Database) + "?" + query.Encode()
}

// Dir returns a temporary directory that a server of another user can enter, for tests that run a private database of
// their own: as root, t.TempDir lies below a directory closed to everyone else.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "orch-test-") //nolint:usetesting // tb.TempDir is what this is instead of
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	return dir
}

// create makes a database from a template.
func create(tb testing.TB, from string) *pgx.ConnConfig {
	tb.Helper()
	c, err := boot()
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	name := fmt.Sprintf("t%d", counter.Add(1))
	strategy := ""
	if c.install.Major >= 15 {
		strategy = " strategy file_copy" // half the time of a copy through the log
	}
	if err := c.exec(tb.Context(), "create database "+name+" template "+from+strategy); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.exec(context.WithoutCancel(tb.Context()), "drop database if exists "+name+" with (force)"); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	cfg := c.conn.Copy()
	cfg.Database = name
	return cfg
}

// closePool reports a connection that the test never gave back, where waiting would hang until the test's timeout.
func closePool(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	timer := time.NewTimer(2 * time.Minute)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		tb.Errorf("testdb: %d connections of the test's pool are still in use at its end", pool.Stat().AcquiredConns())
	}
}

// exec runs one statement on a connection of its own: a pool would keep goroutines.
func (c *cluster) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg := c.conn.Copy()
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
