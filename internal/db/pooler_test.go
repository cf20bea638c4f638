package db_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/testdb"
)

// TestPoolerIsFoundOut has the listener go through a transaction pooler. One server connection is the worst case: it
// hears its own notifications, and no others.
func TestPoolerIsFoundOut(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2} {
		t.Run(strconv.Itoa(servers), func(t *testing.T) {
			t.Parallel()
			cfg := testdb.Empty(t)
			p := newPooler(t, cfg, servers)
			log, lines := newLog()
			pooled := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, via(cfg, p.listener)) }
			l := listen(t, cfg, db.ListenerConfig{Connect: pooled, Sender: pooled, Answer: time.Second, Logger: log})
			if line := lines.await(t, db.CodeNotHeard); line["level"] != "ERROR" {
				t.Errorf("not loud: %v", line)
			}
			for range 3 { // it goes on trying, and says no more
				receive(t, l.ready, "another attempt")
			}
			if l.Connected() || len(l.connects) > 0 {
				t.Error("trusted a pooler")
			}
			if lines.repeats(db.CodeNotHeard) {
				t.Error("told of it again and again")
			}
		})
	}
}

// TestPoolerForAllButTheListener is how it is meant to be: the pool through the pooler, the listener past it.
func TestPoolerForAllButTheListener(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newPooler(t, cfg, 2)
	pooled := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, via(cfg, p.listener)) }
	l := listen(t, cfg, db.ListenerConfig{Sender: pooled})
	receive(t, l.connects, "the connection")
	sender, err := pooled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close(context.WithoutCancel(t.Context())) }()
	if _, err := sender.Exec(t.Context(), "select pg_notify('orch_jobs', 'agents')", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, l.heard, "a notification"); got != "orch_jobs agents" {
		t.Errorf("heard %q", got)
	}
}

// TestPoolThroughAPooler is what the package's text asks of an operator, and what he is told who didn't read it.
func TestPoolThroughAPooler(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	strict := newPooler(t, cfg, 1)
	err := open(t, db.Config{Conn: via(cfg, strict.listener)}).Ping(t.Context())
	wantCode(t, err, db.CodeStartup)
	if db.Unreachable(err) {
		t.Error("waiting doesn't help against a pooler that refuses a parameter")
	}

	p := newPooler(t, cfg, 2, "statement_timeout", "idle_in_transaction_session_timeout")
	conn := via(cfg, p.listener)
	conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pool := open(t, db.Config{Conn: conn, MaxConns: 4})
	if _, err := pool.Exec(t.Context(), "create table a (id int, name text)"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 25 {
				err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					var back string
					return tx.QueryRow(t.Context(), "insert into a values ($1, $2) returning name", 100*n+i, "x").Scan(&back)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var rows int
	if err := pool.QueryRow(t.Context(), "select count(*) from a where id = any($1)", []int{1, 101, 201, 301}).Scan(&rows); err != nil || rows != 4 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
