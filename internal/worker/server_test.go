package worker_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/migrations"
)

// server is a PostgreSQL of the test's own, which it may stop, start and break.
type server struct {
	t    *testing.T
	cfg  pgembed.Config
	pg   *pgembed.Server
	conn *pgx.ConnConfig
	pool *pgxpool.Pool // the test's own
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, cfg: pgembed.Config{
		// The log of transactions survives a crash of the server, if not one of the machine.
		Dir: filepath.Join(testdb.Dir(t), "pg"), Unsafe: true, Extra: []string{"synchronous_commit=on", "max_connections=200"},
		InitArgs: []string{"--wal-segsize=1"},
	}}
	s.start()
	t.Cleanup(func() {
		if err := s.pg.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	s.conn = s.pg.ConnConfig(pgembed.Database)
	migrator, err := db.NewMigrator(migrations.Files, nil)
	s.no(err)
	conn, err := pgx.ConnectConfig(t.Context(), s.conn.Copy())
	s.no(err)
	_, err = migrator.Apply(t.Context(), conn)
	s.no(err)
	s.no(conn.Close(t.Context()))
	s.pool = s.open(4)
	return s
}

func (s *server) no(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	defer cancel()
	pg, err := pgembed.Start(ctx, s.cfg)
	s.no(err)
	s.pg = pg
}

// restart stops the server as an operator does and starts it again.
func (s *server) restart() {
	s.t.Helper()
	s.no(s.pg.Stop(s.t.Context()))
	s.start()
}

// crash kills one of the server's processes in the middle of what it does: the server recovers from its log.
func (s *server) crash() {
	s.t.Helper()
	var pid int
	queuetest.Until(s.t, "a backend", func() bool { // connections of before a restart are of no use
		return s.pool.QueryRow(s.t.Context(), `select pg_backend_pid()`).Scan(&pid) == nil
	})
	s.no(syscall.Kill(pid, syscall.SIGKILL))
	s.answers("after the crash")
}

func (s *server) answers(when string) {
	s.t.Helper()
	queuetest.Until(s.t, "the server answers "+when, func() bool { return s.pool.Ping(s.t.Context()) == nil })
}

// open makes a pool like orch's.
func (s *server) open(conns int32) *pgxpool.Pool {
	s.t.Helper()
	pool, err := db.Open(context.WithoutCancel(s.t.Context()), db.Config{Conn: s.conn, MaxConns: conns})
	s.no(err)
	s.t.Cleanup(pool.Close)
	return pool
}

// exec runs statements, each in a transaction of its own, as alter system wants it, on a connection that may write whatever
// the server says.
func (s *server) exec(statements ...string) {
	s.t.Helper()
	cfg := s.conn.Copy()
	cfg.RuntimeParams["default_transaction_read_only"] = "off"
	conn, err := pgx.ConnectConfig(s.t.Context(), cfg)
	s.no(err)
	defer func() { s.no(conn.Close(context.WithoutCancel(s.t.Context()))) }()
	for _, sql := range statements {
		_, err := conn.Exec(s.t.Context(), sql)
		s.no(err)
	}
}
