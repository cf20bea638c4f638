package testdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL of the test's own, beside the one that all tests share: for what concerns a whole server.
type Server struct {
	cluster *cluster
	running bool
}

// NewServer runs a server with a migrated database, and with further settings (name=value). It goes at the test's end.
func NewServer(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s := prepareServer(tb, settings)
	s.copyFrom(tb, "")
	s.Start(tb)
	return s
}

// NewPrimary is NewServer for a server that standbys can follow.
func NewPrimary(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return NewServer(tb, append([]string{"wal_level=replica", "max_wal_senders=4", "wal_keep_size=64MB"}, settings...)...)
}

// Standby stops the primary for a moment, copies it, and runs the copy as its standby, with further settings.
func (s *Server) Standby(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s.Stop(tb)
	from := s.cluster.conn
	standby := prepareServer(tb, append(append([]string{}, s.cluster.extra...), append([]string{
		"hot_standby=on", fmt.Sprintf("primary_conninfo=host=%s port=%d user=%s", from.Host, from.Port, from.User),
	}, settings...)...))
	standby.copyFrom(tb, s.cluster.data())
	s.Start(tb)
	// Whether the file is there is all that counts, and the server may remove it: the directory is its own.
	if err := os.WriteFile(filepath.Join(standby.cluster.data(), "standby.signal"), nil, 0o600); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	standby.Start(tb)
	return standby
}

// ConnConfig returns how to connect to the migrated database.
func (s *Server) ConnConfig() *pgx.ConnConfig {
	cfg := s.cluster.conn.Copy()
	cfg.Database = template
	return cfg
}

// Exec runs one statement as the superuser, on a connection of its own.
func (s *Server) Exec(tb testing.TB, sql string) {
	tb.Helper()
	if err := s.cluster.exec(tb.Context(), sql); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
}

// Start starts a stopped server, and returns when it answers.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bootTimeout)
	defer cancel()
	if err := s.cluster.run(ctx); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	s.running = true
}

// Stop ends the server and all its sessions (a "fast" shutdown), and returns when it is gone.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.end(tb, syscall.SIGINT)
}

func (s *Server) end(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if !s.running {
		return
	}
	s.running = false
	pid := s.cluster.server.Process.Pid
	if err := syscall.Kill(pid, signal); err != nil {
		tb.Fatalf("testdb: stop the server: %v", err)
	}
	deadline := time.Now().Add(bootTimeout)
	for !exited(pid) {
		if time.Now().After(deadline) {
			tb.Fatalf("testdb: the server doesn't stop")
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func prepareServer(tb testing.TB, settings []string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bootTimeout)
	defer cancel()
	c, err := prepare(ctx)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	c.extra = settings
	s := &Server{cluster: c}
	tb.Cleanup(func() {
		s.end(tb, syscall.SIGQUIT)
		if err := c.leash.Close(); err != nil { // the watchdog removes the files
			tb.Errorf("testdb: %v", err)
		}
	})
	return s
}

func (s *Server) copyFrom(tb testing.TB, data string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bootTimeout)
	defer cancel()
	if err := s.cluster.copyFrom(ctx, data); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
}
