package db_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/testdb"
)

// TestStopEndsAListenerThatIsStuck stops it in each phase of a connection, where every limit of its own is an hour.
func TestStopEndsAListenerThatIsStuck(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	const terminate = "X\x00\x00\x00\x04"
	for phase, hold := range map[string]string{
		"start-up":          "application_name",
		"read-only check":   "pg_is_in_recovery",
		"listen":            "listen ",
		"wait for the echo": "",
		"wait":              "",
		"ping":              "pg_notification_queue_usage",
		"goodbye":           terminate,
	} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			cfg := testdb.Empty(t)
			p := newProxy(t, cfg)
			p.holdOn(hold)
			lc := db.ListenerConfig{Ping: never, Answer: never, Connect: func(ctx context.Context) (*pgx.Conn, error) {
				return db.Connect(ctx, db.Config{Conn: p.config(cfg), ConnectTimeout: never, StatementTimeout: never})
			}}
			sent := make(chan struct{})
			switch phase {
			case "ping":
				lc.Ping = time.Millisecond
			case "wait for the echo":
				other := testdb.Empty(t)
				lc.Sender = func(ctx context.Context) (*pgx.Conn, error) {
					close(sent)
					return pgx.ConnectConfig(ctx, other)
				}
			}
			l := listen(t, cfg, lc)
			switch phase {
			case "wait for the echo":
				receive(t, sent, "the notification")
			case "wait", "goodbye":
				receive(t, l.connects, "the connection")
				p.silence()
			default:
				receive(t, p.held, "the connection to get stuck")
			}
			if err := l.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStopWhileNotifyingItself has the other connection stuck, the one that notifies.
func TestStopWhileNotifyingItself(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	p.muteNew(true)
	l := listen(t, cfg, db.ListenerConfig{Answer: time.Hour, Sender: func(ctx context.Context) (*pgx.Conn, error) {
		return db.Connect(ctx, db.Config{Conn: p.config(cfg), ConnectTimeout: time.Hour})
	}})
	receive(t, p.held, "the sender to get stuck")
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// TestStopWhileDialling has a network that answers no packet.
func TestStopWhileDialling(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	dialling := make(chan struct{}, 1)
	deaf := cfg.Copy()
	deaf.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialling <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	l := listen(t, cfg, db.ListenerConfig{Connect: func(ctx context.Context) (*pgx.Conn, error) {
		return db.Connect(ctx, db.Config{Conn: deaf, ConnectTimeout: time.Hour})
	}})
	receive(t, dialling, "dialling")
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// TestStopWhileConnectingIgnoresIt has a dialling that ignores its context: the connection that comes of it is closed.
func TestStopWhileConnectingIgnoresIt(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	dialling, release, closed := make(chan struct{}), make(chan struct{}), make(chan *pgx.Conn, 1)
	l := listen(t, cfg, db.ListenerConfig{Connect: func(ctx context.Context) (*pgx.Conn, error) {
		close(dialling)
		<-release
		late, err := dialer(cfg, "listener")(context.WithoutCancel(ctx))
		closed <- late
		return late, err
	}})
	receive(t, dialling, "dialling")
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	close(release)
	if receive(t, closed, "the late connection") == nil {
		t.Fatal("no late connection")
	}
	eventually(t, "the late connection is closed", func() bool { return len(backends(t, conn)) == 0 })
}
