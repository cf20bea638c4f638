package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"orch/internal/app/database"
	"orch/internal/testdb"
)

func TestStopEndsEveryWaitOfAWorker(t *testing.T) {
	t.Parallel()
	silent := listenSilently(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	_ = closed.Close()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t), "ORCH_POLL_S=3600") // only the signal can end such a wait
	p.bound()
	stops := func(p *place, reason string) {
		t.Helper()
		w := p.start("worker")
		w.waits(reason)
		w.stops()
		if strings.Contains(w.text(), "hunter2") {
			t.Error("the password is in the log")
		}
	}

	stops(p.at("missing"), "root_missing")
	p.write("unbound/orch.yaml", "")
	stops(p.at("unbound"), "root_unbound")
	stops(p.with("ORCH_DATABASE_URL=postgres://orch:hunter2@"+nobody+"/orch"), "database_unreachable")
	for _, variable := range []string{"ORCH_DATABASE_URL", "ORCH_DATABASE_LISTEN_URL"} {
		w := p.with(variable + "=postgres://orch@" + silent.addr + "/orch?sslmode=disable").start("worker")
		silent.comes() // and is stuck connecting
		w.stops()
	}
	starter := data.connect()
	if _, err := starter.Exec(t.Context(), `begin; select from roots for update`); err != nil {
		t.Fatal(err)
	}
	stops(p, "start_busy")
	database.Close(t.Context(), starter)
	data.exec(`update instance set setup = 'bootstrapping'`)
	stops(p, "setup_pending")
	data.exec(`delete from schema_migrations where version > 1`)
	stops(p, "pending_migration")
	data.exec(`delete from schema_migrations`)
	stops(p, "not_migrated")
}

// silence is an address where connections are accepted and nothing is ever said.
type silence struct {
	t    *testing.T
	addr string
	came chan struct{}
}

// comes waits for a connection.
func (s silence) comes() {
	s.t.Helper()
	select {
	case <-s.came:
	case <-time.After(patience):
		s.t.Fatal("nobody connects")
	}
}

func listenSilently(t *testing.T) silence {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := silence{t: t, addr: listener.Addr().String(), came: make(chan struct{}, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			held = append(held, conn)
			s.came <- struct{}{}
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return s
}
