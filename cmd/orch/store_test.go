package main

import (
	"context"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/app/database"
	"orch/internal/testdb"
)

// onDatabase gives a place a database of its own, and quick polls and beats. Leases and the reaper keep their own pace: at a
// quicker one a busy machine's worker is taken for silent, and its handler for stuck.
func (p *place) onDatabase(url *pgx.ConnConfig, more ...string) *store {
	p.env = append([]string{
		"ORCH_DATABASE_URL=" + testdb.URL(url), "ORCH_AUTO_MIGRATE=true", "ORCH_POLL_S=0.1", "ORCH_HEARTBEAT_S=0.3",
	}, more...)
	return &store{t: p.t, config: url}
}

// onGivenDatabase spares a place a server of its own, where the test isn't about that. All else is as usual.
func (p *place) onGivenDatabase() {
	p.env = append(p.env, "ORCH_DATABASE_URL="+testdb.URL(testdb.Empty(p.t)), "ORCH_AUTO_MIGRATE=true")
}

// with is the same place with more variables.
func (p *place) with(env ...string) *place {
	other := *p
	other.env = slices.Concat(p.env, env)
	return &other
}

// at is the same place with another data root.
func (p *place) at(root string) *place {
	other := *p
	other.root = filepath.Join(p.dir, root)
	return &other
}

// store is the database, as a test looks into it.
type store struct {
	t      *testing.T
	config *pgx.ConnConfig
}

func (s *store) connect() *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.ConnectConfig(s.t.Context(), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { database.Close(context.WithoutCancel(s.t.Context()), conn) })
	return conn
}

func (s *store) exec(sql string, args ...any) {
	s.t.Helper()
	conn := s.connect()
	defer database.Close(s.t.Context(), conn)
	if _, err := conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// value asks for one value as text.
func (s *store) value(sql string) (value string) {
	s.t.Helper()
	conn := s.connect()
	defer database.Close(s.t.Context(), conn)
	if err := conn.QueryRow(s.t.Context(), "select ("+sql+")::text").Scan(&value); err != nil {
		s.t.Fatal(err)
	}
	return value
}

// becomes waits until the value is as wanted.
func (s *store) becomes(want, sql string) {
	s.t.Helper()
	conn := s.connect()
	defer database.Close(s.t.Context(), conn)
	eventually(s.t, sql+" becomes "+want, func(ctx context.Context) bool {
		var value string
		return conn.QueryRow(ctx, "select ("+sql+")::text").Scan(&value) == nil && value == want
	})
}

const (
	generation = `select generation from roots`
	claims     = `select coalesce(max(epoch), 0) from jobs`
	theTask    = `select state from tasks where key = 'app-1'`
)

// bound makes a data root and its database with a task that nobody has begun, and leaves both alone.
func (p *place) bound() {
	p.t.Helper()
	s := p.with("ORCH_WORKER_ENABLED=false").serve()
	s.add("Do it")
	if err := s.end(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// committer is an agent that is done at once.
const committer = `echo "$ORCH_TASK" > "$ORCH_TASK.txt" && git add . && git commit -qm "Do $ORCH_TASK"
`
