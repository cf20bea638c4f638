package db_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/testdb"
)

var errNoServer = errors.New("no server today")

// listening is a Listener under test and what it has told.
type listening struct {
	*db.Listener
	connects chan struct{}
	heard    chan string
	ready    chan struct{}
	stop     func() error
}

func listen(t *testing.T, cfg db.ListenerConfig) *listening {
	t.Helper()
	l := &listening{connects: make(chan struct{}, 100), heard: make(chan string, 1000), ready: make(chan struct{}, 100)}
	cfg.OnConnect = func() { l.connects <- struct{}{} }
	cfg.OnNotify = func(channel, payload string) { l.heard <- channel + " " + payload }
	cfg.Channels = []string{"orch_jobs", `odd "name"`}
	l.Listener = db.NewListener(cfg)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, func() { l.ready <- struct{}{} }) }()
	l.stop = sync.OnceValue(func() error {
		cancel(nil)
		return <-done
	})
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if l.Connected() {
			t.Error("connected after Run")
		}
	})
	return l
}

func dialer(cfg *pgx.ConnConfig) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }
}

// backends answers the process ids of the listeners on this connection's database.
func backends(t *testing.T, conn *pgx.Conn) []int32 {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func TestListenerHears(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, db.ListenerConfig{Connect: dialer(cfg)})
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
}

func TestListenerSurvivesItsBackend(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, db.ListenerConfig{Connect: dialer(cfg)})
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

// TestListenerIdles proves that its own pings keep a silent connection, and that nobody hears of them.
func TestListenerIdles(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	l := listen(t, db.ListenerConfig{Connect: dialer(cfg), Ping: 5 * time.Millisecond})
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
}

// TestListenerFindsHalfOpenConnection silences the connection without closing it.
func TestListenerFindsHalfOpenConnection(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	p := newProxy(t, cfg)
	l := listen(t, db.ListenerConfig{Connect: dialer(p.config(cfg)), Ping: 50 * time.Millisecond})
	receive(t, l.connects, "the connection")
	p.silence()
	receive(t, l.connects, "a new connection")
	exec(t, conn, "select pg_notify('orch_jobs', 'agents')")
	if got := receive(t, l.heard, "a notification"); got != "orch_jobs agents" {
		t.Errorf("heard %q", got)
	}
}

func TestListenerWaitsForTheServer(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	var up atomic.Bool
	l := listen(t, db.ListenerConfig{Connect: func(ctx context.Context) (*pgx.Conn, error) {
		if !up.Load() {
			return nil, errNoServer
		}
		return pgx.ConnectConfig(ctx, cfg)
	}})
	receive(t, l.ready, "ready without a connection")
	if l.Connected() {
		t.Error("connected to nothing")
	}
	up.Store(true)
	receive(t, l.connects, "the connection")
}

// TestStopWhileConnecting stops a listener whose dialling ignores its context.
func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	conn := connect(t, cfg)
	dialling, release, closed := make(chan struct{}), make(chan struct{}), make(chan *pgx.Conn, 1)
	l := listen(t, db.ListenerConfig{Connect: func(ctx context.Context) (*pgx.Conn, error) {
		close(dialling)
		<-release
		late, err := pgx.ConnectConfig(context.WithoutCancel(ctx), cfg)
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
	deadline := time.Now().Add(patience)
	for len(backends(t, conn)) != 0 {
		if time.Now().After(deadline) {
			t.Fatal("the late connection stayed open")
		}
		exec(t, conn, "select pg_sleep(0.01)")
	}
}

// TestStopOfSilentConnection stops a listener whose peer doesn't answer any more: the goodbye is bounded.
func TestStopOfSilentConnection(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	l := listen(t, db.ListenerConfig{Connect: dialer(p.config(cfg))})
	receive(t, l.connects, "the connection")
	p.silence()
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

func TestListenerStartStopStress(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	for i := range 30 {
		ctx, cancel := context.WithCancelCause(t.Context())
		l := db.NewListener(db.ListenerConfig{Connect: dialer(cfg), Channels: []string{"a"}, OnConnect: func() {
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

// proxy stands between a listener and its server.
type proxy struct {
	listener net.Listener
	target   func() (net.Conn, error)
	mu       sync.Mutex
	silenced []*atomic.Bool
	conns    []net.Conn
	running  sync.WaitGroup
}

func newProxy(t *testing.T, cfg *pgx.ConnConfig) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: func() (net.Conn, error) {
		network, address := "tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
		if cfg.Host[0] == '/' {
			network, address = "unix", cfg.Host+"/.s.PGSQL."+strconv.Itoa(int(cfg.Port))
		}
		return net.Dial(network, address)
	}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.running.Wait()
	})
	return p
}

// config is cfg by way of the proxy.
func (p *proxy) config(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	cfg = cfg.Copy()
	addr, _ := p.listener.Addr().(*net.TCPAddr)
	cfg.Host, cfg.Port, cfg.Fallbacks = "127.0.0.1", addr.AddrPort().Port(), nil
	return cfg
}

// silence swallows from now on whatever the connections that exist send, in both directions.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, flag := range p.silenced {
		flag.Store(true)
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := p.target()
		if err != nil {
			_ = client.Close()
			continue
		}
		flag := &atomic.Bool{}
		p.mu.Lock()
		p.silenced = append(p.silenced, flag)
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.running.Go(func() { pump(client, server, flag) })
		p.running.Go(func() { pump(server, client, flag) })
	}
}

func pump(from, to net.Conn, silenced *atomic.Bool) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 && !silenced.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !silenced.Load() && errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			return
		}
	}
}
