package db_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/testdb"
)

var errNoServer = errors.New("no server today")

func TestListenerHears(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{})
	receive(t, l.ready, "ready")
	receive(t, l.connects, "the connection")
	if !l.Connected() {
		t.Error("not connected")
	}
	exec(t, conn, "select pg_notify('orch_jobs', 'agents'), pg_notify('other', 'x')")
	exec(t, conn, `select pg_notify('odd "name"', '')`)
	if got := receive(t, l.heard, "a notification"); got != "orch_jobs agents" {
		t.Errorf("heard %q", got)
	}
	if got := receive(t, l.heard, "a notification"); got != `odd "name" ` {
		t.Errorf("heard %q", got)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the server's session ends", func() bool { return len(backends(t, conn)) == 0 })
}

func TestListenerSurvivesItsBackend(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{})
	for range 3 {
		receive(t, l.connects, "the connection")
		exec(t, conn, "select pg_notify('orch_jobs', 'merge')")
		if got := receive(t, l.heard, "a notification"); got != "orch_jobs merge" {
			t.Errorf("heard %q", got)
		}
		for _, pid := range backends(t, conn) {
			exec(t, conn, "select pg_terminate_backend($1, 10000)", pid)
		}
	}
	receive(t, l.connects, "the last connection")
}

// TestListenerIdles proves that its own pings keep a silent connection, that nobody hears of them, and that no
// transaction stays open, which would hold up the server's notification queue for everybody.
func TestListenerIdles(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{Ping: 5 * time.Millisecond})
	receive(t, l.connects, "the connection")
	before := backends(t, conn)
	// Some hundred pings later …
	exec(t, conn, "select pg_sleep(1)")
	exec(t, conn, "select pg_notify('orch_jobs', 'system')")
	if got := receive(t, l.heard, "a notification"); got != "orch_jobs system" {
		t.Errorf("heard %q", got)
	}
	if after := backends(t, conn); len(before) != 1 || len(after) != 1 || before[0] != after[0] {
		t.Errorf("backends %v, then %v", before, after)
	}
	eventually(t, "the listener is in no transaction", func() bool {
		var open bool
		err := conn.QueryRow(t.Context(), "select xact_start is not null from pg_stat_activity where pid = $1", before[0]).Scan(&open)
		return err == nil && !open
	})
}

// TestListenerFindsHalfOpenConnection silences the connection without closing it.
func TestListenerFindsHalfOpenConnection(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	p := newProxy(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{Connect: dialer(p.config(cfg), "listener"), Ping: 50 * time.Millisecond, Answer: time.Second})
	receive(t, l.connects, "the connection")
	p.silence()
	receive(t, l.connects, "a new connection")
	notifyUntilHeard(t, l, func() { exec(t, conn, "select pg_notify('orch_jobs', 'agents')") })
}

// TestListenerComesBackAfterDrops counts the full fetches, too: one for each connection.
func TestListenerComesBackAfterDrops(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	p := newProxy(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{Connect: dialer(p.config(cfg), "listener")})
	for range 3 {
		receive(t, l.connects, "the connection")
		exec(t, conn, "select pg_notify('orch_jobs', 'agents')")
		receive(t, l.heard, "a notification")
		p.drop()
	}
	receive(t, l.connects, "the last connection")
	if n := len(l.connects); n != 0 {
		t.Errorf("%d connections too many", n)
	}
}

func TestListenerWaitsForTheServer(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	var up atomic.Bool
	log, lines := newLog()
	l := listen(t, cfg, db.ListenerConfig{Logger: log, Connect: func(ctx context.Context) (*pgx.Conn, error) {
		if !up.Load() {
			return nil, errNoServer
		}
		return pgx.ConnectConfig(ctx, cfg)
	}})
	for range 3 {
		receive(t, l.ready, "ready without a connection")
	}
	if l.Connected() {
		t.Error("connected to nothing")
	}
	if n := lines.count(db.CodeInternal); n != 1 {
		t.Errorf("an outage was told %d times", n)
	}
	up.Store(true)
	receive(t, l.connects, "the connection")
}

// TestListenerGivesUpAConnectThatHangs meets a server that accepts and then says nothing.
func TestListenerGivesUpAConnectThatHangs(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	p.muteNew(true)
	log, lines := newLog()
	l := listen(t, cfg, db.ListenerConfig{Logger: log, Connect: func(ctx context.Context) (*pgx.Conn, error) {
		return db.Connect(ctx, db.Config{Conn: p.config(cfg), ConnectTimeout: 500 * time.Millisecond})
	}})
	receive(t, p.held, "the first attempt")
	receive(t, p.held, "the second attempt")
	lines.await(t, db.CodeUnreachable)
	p.muteNew(false)
	receive(t, l.connects, "the connection")
}

// TestListenerOfTheWrongDatabaseIsNotHeard mistakes ORCH_DATABASE_LISTEN_URL.
func TestListenerOfTheWrongDatabaseIsNotHeard(t *testing.T) {
	t.Parallel()
	log, lines := newLog()
	listen(t, testdb.Empty(t), db.ListenerConfig{Logger: log, Sender: dialer(testdb.Empty(t), "sender"), Answer: time.Second})
	lines.await(t, db.CodeNotHeard)
}

func TestListenerStartStopStress(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	for i := range 30 {
		ctx, cancel := context.WithCancelCause(t.Context())
		l := db.NewListener(db.ListenerConfig{Connect: dialer(cfg, "listener"), Channels: []string{"a"}, OnConnect: func() {
			if i%3 == 0 {
				cancel(nil)
			}
		}})
		if i%3 != 0 {
			go func() {
				for range i * 100 {
					l.Connected()
				}
				cancel(nil)
			}()
		}
		if err := l.Run(ctx, func() {}); err != nil {
			t.Fatal(err)
		}
	}
}
