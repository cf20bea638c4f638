package db_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"orch/internal/db"
	"orch/internal/testdb"
)

// TestConnectHasThePoolsLimits: a connection beside the pool is bounded as those in it.
func TestConnectHasThePoolsLimits(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn, err := db.Connect(t.Context(), db.Config{Conn: newProxy(t, cfg).config(cfg), ApplicationName: "orch listener"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for setting, want := range map[string]string{
		"statement_timeout": "30s", "idle_in_transaction_session_timeout": "1min", "application_name": "orch listener",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, not %q (%v)", setting, got, want, err)
		}
	}
	for option, want := range map[int]int{unix.TCP_USER_TIMEOUT: 30_000, unix.TCP_KEEPIDLE: 10, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 4} {
		if got := socketOption(t, conn.PgConn(), option); got != want {
			t.Errorf("TCP option %d is %d, not %d", option, got, want)
		}
	}
	if _, err := db.Connect(t.Context(), db.Config{}); err == nil {
		t.Error("connected without settings")
	}
}

func socketOption(t *testing.T, conn *pgconn.PgConn, option int) (value int) {
	t.Helper()
	outer, ok := conn.Conn().(interface{ NetConn() net.Conn })
	if !ok {
		t.Fatalf("a connection of type %T", conn.Conn())
	}
	tcp, ok := outer.NetConn().(*net.TCPConn)
	if !ok {
		t.Fatalf("a connection of type %T", outer.NetConn())
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		value, inner = unix.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option)
	}); err != nil || inner != nil {
		t.Fatal(err, inner)
	}
	return value
}

// TestIdleTransactionIsEnded: a process that is stopped in the middle of a transaction doesn't hold its locks for ever.
func TestIdleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	pool := open(t, db.Config{Conn: cfg, IdleTimeout: 20 * time.Millisecond})
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := int32(tx.Conn().PgConn().PID())
	admin := connect(t, cfg)
	eventually(t, "the session is ended", func() bool {
		var there bool
		return admin.QueryRow(t.Context(), "select exists (select from pg_stat_activity where pid = $1)", pid).Scan(&there) == nil && !there
	})
	_, err = tx.Exec(t.Context(), "select 1")
	wantCode(t, err, db.CodeUnreachable)
	_ = tx.Rollback(t.Context())
	if err := pool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHostThatHangsIsPassedOver: of the hosts in a URL, one that accepts and says nothing has no more than its own time.
func TestHostThatHangsIsPassedOver(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	p.muteNew(true)
	hanging := p.config(cfg)
	hanging.Fallbacks = []*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port}}
	settings := db.Config{Conn: hanging, ConnectTimeout: 3 * time.Second} // for the one that answers, too
	conn, err := db.Connect(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := open(t, settings).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFailover moves from a primary to its standby with nothing but a URL that names both.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := testdb.NewPrimary(t)
	standby := primary.Standby(t)
	at, then := primary.ConnConfig(), standby.ConnConfig()
	// The standby first: it has to be passed over as long as it is one.
	both := then.Copy()
	both.Fallbacks = []*pgconn.FallbackConfig{{Host: at.Host, Port: at.Port}}

	wantCode(t, open(t, db.Config{Conn: then}).Ping(t.Context()), db.CodeReadOnly)
	pool := open(t, db.Config{Conn: both, MaxConns: 3})
	count := func() error {
		_, err := pool.Exec(t.Context(), "insert into counters (name, total) values ('x', 1) on conflict (name) do update set total = counters.total + 1")
		return err
	}
	if err := count(); err != nil {
		t.Fatal(err)
	}
	l := listen(t, both, db.ListenerConfig{Ping: 50 * time.Millisecond})
	receive(t, l.connects, "the connection to the primary")

	primary.Stop(t)
	if err := count(); !db.Unreachable(err) {
		t.Errorf("without a primary: %v", err)
	}
	standby.Exec(t, "select pg_promote()")
	eventually(t, "the pool writes to the new primary", func() bool { return count() == nil })
	receive(t, l.connects, "the connection to the new primary")
	notifyUntilHeard(t, l, func() {
		if _, err := pool.Exec(t.Context(), "select pg_notify('orch_jobs', 'agents')"); err != nil {
			t.Error(err)
		}
	})
	var total int
	if err := pool.QueryRow(t.Context(), "select total from counters where name = 'x'").Scan(&total); err != nil || total != 2 {
		t.Errorf("the new primary counted %d, %v", total, err)
	}
}
