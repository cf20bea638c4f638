package db_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/testdb"
)

func open(t *testing.T, cfg db.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func show(t *testing.T, pool *pgxpool.Pool, setting string) string {
	t.Helper()
	var value string
	if err := pool.QueryRow(t.Context(), "show "+setting).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestOpenSettings(t *testing.T) {
	t.Parallel()
	conn := testdb.Empty(t)
	pool := open(t, db.Config{Conn: conn, ApplicationName: "orch tests", StatementTimeout: 1500 * time.Millisecond, MaxConns: 3})
	if got := show(t, pool, "statement_timeout"); got != "1500ms" {
		t.Errorf("statement_timeout %q", got)
	}
	if got := show(t, pool, "application_name"); got != "orch tests" {
		t.Errorf("application_name %q", got)
	}
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("max conns %d", got)
	}
	defaults := open(t, db.Config{Conn: conn})
	if got := show(t, defaults, "statement_timeout"); got != "30s" {
		t.Errorf("default statement_timeout %q", got)
	}
	unlimited := open(t, db.Config{Conn: conn, StatementTimeout: -1})
	if got := show(t, unlimited, "statement_timeout"); got != "0" {
		t.Errorf("no statement_timeout is %q", got)
	}
	own := conn.Copy()
	own.RuntimeParams["statement_timeout"] = "7000"
	if got := show(t, open(t, db.Config{Conn: own}), "statement_timeout"); got != "7s" {
		t.Errorf("the URL's statement_timeout became %q", got)
	}
	if _, err := db.Open(t.Context(), db.Config{}); err == nil {
		t.Error("opened without settings")
	}
}

func TestStatementTimeoutHasACode(t *testing.T) {
	t.Parallel()
	pool := open(t, db.Config{Conn: testdb.Empty(t), StatementTimeout: 20 * time.Millisecond})
	_, err := pool.Exec(t.Context(), "select pg_sleep(10)")
	wantCode(t, err, db.CodeStatement)
}

func TestInTx(t *testing.T) {
	t.Parallel()
	pool := open(t, db.Config{Conn: testdb.Empty(t), MaxConns: 1})
	if _, err := pool.Exec(t.Context(), "create table a (id int primary key deferrable initially deferred)"); err != nil {
		t.Fatal(err)
	}
	insert := func(ctx context.Context, after func() error) error {
		return db.InTx(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into a values (1)"); err != nil {
				return err
			}
			return after()
		})
	}
	count := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select count(*) from a").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	errOwn := errors.New("own")
	if err := insert(t.Context(), func() error { return errOwn }); !errors.Is(err, errOwn) || count() != 0 {
		t.Errorf("error of fn: %v, %d rows", err, count())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = insert(t.Context(), func() error { panic("boom") })
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := insert(ctx, func() error { cancel(nil); return errOwn }); !errors.Is(err, errOwn) {
		t.Errorf("cancelled: %v", err)
	}
	// With one connection in the pool these would wait for ever had the ones above not given it back.
	if count() != 0 {
		t.Errorf("%d rows after rollbacks", count())
	}
	if err := insert(t.Context(), func() error { return nil }); err != nil || count() != 1 {
		t.Errorf("commit: %v, %d rows", err, count())
	}
	err := insert(t.Context(), func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "commit transaction") || db.ViolatedConstraint(err) != "a_pkey" {
		t.Errorf("commit that fails: %v", err)
	}
	wantCode(t, err, db.CodeUnique)
	_, err = db.Open(t.Context(), db.Config{Conn: nil})
	if err == nil {
		t.Error("no settings")
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	exec(t, conn, `create table parent (id int primary key);
		create table child (id int not null constraint positive check (id > 0), parent int constraint has_parent references parent)`)
	for sql, want := range map[string]struct{ code, constraint string }{
		"insert into child values (0, null)":                        {db.CodeCheck, "positive"},
		"insert into child values (1, 1)":                           {db.CodeForeignKey, "has_parent"},
		"insert into child values (null, null)":                     {db.CodeNotNull, ""},
		"select * from nowhere":                                     {db.CodeSchema, ""},
		"select 'x'::int":                                           {db.CodeBadData, ""},
		"begin read only; create table c (id int); rollback":        {db.CodeReadOnly, ""},
		"do $$ begin raise sqlstate '40P01'; end $$":                {db.CodeDeadlock, ""},
		"do $$ begin raise sqlstate '28P01'; end $$":                {db.CodeAuth, ""},
		"do $$ begin raise sqlstate '53300'; end $$":                {db.CodeNoResource, ""},
		"do $$ begin raise sqlstate '08006'; end $$":                {db.CodeUnreachable, ""},
		"do $$ begin raise exception 'something of my own'; end $$": {db.CodeInternal, ""},
	} {
		_, err := conn.Exec(t.Context(), sql)
		wantCode(t, err, want.code)
		if got := db.ViolatedConstraint(err); got != want.constraint {
			t.Errorf("%s: constraint %q, want %q", sql, got, want.constraint)
		}
		exec(t, conn, "rollback")
	}
	wantCode(t, nil, "")
	wantCode(t, errors.New("what"), db.CodeInternal)
	wantCode(t, conn.QueryRow(t.Context(), "select 1 where false").Scan(new(int)), db.CodeNoRows)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	base := testdb.Empty(t)
	nobody := base.Copy()
	nobody.Host, nobody.Port = "127.0.0.1", closedPort(t)
	nobody.Password = "hunter2"
	nobody.Fallbacks = nil
	pool := open(t, db.Config{Conn: nobody})
	err := pool.Ping(t.Context())
	if !db.Unreachable(err) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("nobody listens: %v", err)
	}
	wantCode(t, err, db.CodeUnreachable)

	missing := base.Copy()
	missing.Database = "no_such_database"
	err = open(t, db.Config{Conn: missing}).Ping(t.Context())
	wantCode(t, err, db.CodeMissing)
	if db.Unreachable(err) {
		t.Error("a missing database isn't an unreachable one")
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	wantCode(t, open(t, db.Config{Conn: base}).Ping(ctx), db.CodeCancelled)

	conn := connect(t, base)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = conn.Exec(ctx, "select pg_sleep(10)")
	wantCode(t, err, db.CodeTimeout)
	if !db.Unreachable(err) {
		t.Error("a database that doesn't answer in time is unreachable")
	}
}

func TestTerminatedConnectionIsUnreachable(t *testing.T) {
	t.Parallel()
	base := testdb.Empty(t)
	victim, admin := connect(t, base), connect(t, base)
	exec(t, admin, "select pg_terminate_backend($1, 10000)", int32(victim.PgConn().PID()))
	_, err := victim.Exec(t.Context(), "select 1")
	wantCode(t, err, db.CodeUnreachable)
	_, err = victim.Exec(t.Context(), "select 1")
	wantCode(t, err, db.CodeUnreachable)
}

// TestReadOnlyServer plays a failover: the server that accepted writes turns into one that doesn't.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	base := testdb.Empty(t)
	admin := connect(t, base)
	pool := open(t, db.Config{Conn: base, MaxConns: 1})
	for _, sql := range []string{"create table a (id int)", "set default_transaction_read_only = on"} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, admin, "alter database "+pgx.Identifier{base.Database}.Sanitize()+" set default_transaction_read_only = on")
	if err := open(t, db.Config{Conn: base}).Ping(t.Context()); !errors.Is(err, db.ErrReadOnly) || !db.Unreachable(err) {
		t.Errorf("connecting to a read-only server: %v", err)
	}
	_, err := pool.Exec(t.Context(), "insert into a values (1)")
	wantCode(t, err, db.CodeReadOnly)
	exec(t, admin, "set default_transaction_read_only = off")
	exec(t, admin, "alter database "+pgx.Identifier{base.Database}.Sanitize()+" reset default_transaction_read_only")
	// The connection with the setting is gone, so a new one serves this.
	if _, err := pool.Exec(t.Context(), "insert into a values (1)"); err != nil {
		t.Errorf("the pool kept the connection: %v", err)
	}
}

// closedPort answers a port that nobody listens on.
func closedPort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", l.Addr())
	}
	return addr.AddrPort().Port()
}
