package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/testdb"
)

// TestSwallowedQueryEndsWithItsCaller has the network swallow a statement in the middle of it.
func TestSwallowedQueryEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	defer p.drop() // the driver takes its time to close what doesn't answer
	p.holdOn("'swallow me'")
	pool := open(t, db.Config{Conn: p.config(cfg), MaxConns: 4, StatementTimeout: time.Hour})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-p.held
		cancel(nil)
	}()
	_, err := pool.Exec(ctx, "select 'swallow me'")
	wantCode(t, err, db.CodeCancelled)
	for range 4 {
		if _, err := pool.Exec(t.Context(), "select 1"); err != nil {
			t.Errorf("the pool didn't recover: %v", err)
		}
	}
}

// TestSwallowedQueryEndsWithoutADeadline: the server's own limit never comes through, so the pool has one.
func TestSwallowedQueryEndsWithoutADeadline(t *testing.T) {
	t.Parallel()
	query := func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "select * from swallow")
		return err
	}
	for name, c := range map[string]struct {
		timeout string
		ask     func(ctx context.Context, pool *pgxpool.Pool) error
	}{
		"number":      {"20", query},
		"with a unit": {"20ms", query},
		"batch": {"20", func(ctx context.Context, pool *pgxpool.Pool) error {
			batch := &pgx.Batch{}
			batch.Queue("select 1")
			batch.Queue("select * from swallow")
			return pool.SendBatch(ctx, batch).Close()
		}},
		"copy": {"20", func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.CopyFrom(ctx, pgx.Identifier{"swallow"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testdb.Empty(t)
			exec(t, connect(t, cfg), "create table swallow (id int)")
			p := newProxy(t, cfg)
			defer p.drop()
			p.holdOn("swallow")
			conn := p.config(cfg)
			conn.RuntimeParams["statement_timeout"] = c.timeout // as in a URL
			pool := open(t, db.Config{Conn: conn})
			err := c.ask(context.WithoutCancel(t.Context()), pool)
			wantCode(t, err, db.CodeTimeout)
			if !db.Unreachable(err) {
				t.Error("it is worth another try")
			}
		})
	}
}

// TestDeadIdleConnectionsGoTogether: only one of them is waited for.
func TestDeadIdleConnectionsGoTogether(t *testing.T) {
	t.Parallel()
	const conns = 5
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	defer p.drop()
	log, lines := newLog()
	pool := open(t, db.Config{Conn: p.config(cfg), MaxConns: conns, Logger: log})
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			// Long enough for each to get a connection of its own; then the first ones are idle for long enough to be tried.
			if _, err := pool.Exec(t.Context(), "select pg_sleep(0.5)"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := pool.Stat().NewConnsCount()
	exec(t, connect(t, cfg), "select pg_sleep(1.1)")
	p.silence()
	for range 2 * conns {
		if _, err := pool.Exec(t.Context(), "select 1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := lines.count(db.CodeUnreachable); n != 1 {
		t.Errorf("the connections were dropped %d times", n)
	}
	if more := pool.Stat().NewConnsCount() - made; more < 1 || more > conns {
		t.Errorf("%d new connections", more)
	}
}

// TestServerThatTurnsReadOnly switches a whole server over, and back.
func TestServerThatTurnsReadOnly(t *testing.T) {
	t.Parallel()
	server := testdb.NewServer(t)
	log, lines := newLog()
	pool := open(t, db.Config{Conn: server.ConnConfig(), MaxConns: 3, Logger: log})
	count := func() error {
		_, err := pool.Exec(t.Context(), "insert into counters (name, total) values ('x', 1) on conflict (name) do update set total = counters.total + 1")
		return err
	}
	if err := count(); err != nil {
		t.Fatal(err)
	}
	l := listen(t, server.ConnConfig(), db.ListenerConfig{Ping: 10 * time.Millisecond})
	receive(t, l.connects, "the connection")

	server.Exec(t, "alter system set default_transaction_read_only = on")
	server.Exec(t, "select pg_reload_conf()")
	eventually(t, "the switch arrives", func() bool { return count() != nil })
	if err := count(); db.Code(err) != db.CodeReadOnly || !db.Unreachable(err) {
		t.Errorf("a server that accepts no writes: %v", err)
	}
	if err := pool.Ping(t.Context()); !errors.Is(err, db.ErrReadOnly) {
		t.Errorf("connected to a server that accepts no writes: %v", err)
	}
	lines.await(t, db.CodeReadOnly)
	if idle := pool.Stat().IdleConns(); idle != 0 {
		t.Errorf("%d connections are kept", idle)
	}

	server.Exec(t, "alter system reset default_transaction_read_only")
	server.Exec(t, "select pg_reload_conf()")
	eventually(t, "the server is written to again", func() bool { return count() == nil })
}
