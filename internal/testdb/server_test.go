package testdb

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func query[T any](t *testing.T, cfg *pgx.ConnConfig, sql string) T {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestServer_KeepsItsDataOverARestart(t *testing.T) {
	t.Parallel()
	s := NewServer(t, "work_mem=5MB")
	query[int](t, s.ConnConfig(), "insert into counters (name, total) values ('x', 7) returning total")
	s.Stop(t)
	if conn, err := pgx.ConnectConfig(t.Context(), s.ConnConfig()); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("a stopped server answers")
	}
	s.Start(t)
	if got := query[int](t, s.ConnConfig(), "select total from counters"); got != 7 {
		t.Errorf("total %d", got)
	}
	if got := query[string](t, s.ConnConfig(), "show work_mem"); got != "5MB" {
		t.Errorf("work_mem %s", got)
	}
}

func TestServer_StandbyFollowsItsPrimaryUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	primary := NewPrimary(t)
	standby := primary.Standby(t)
	if !query[bool](t, standby.ConnConfig(), "select pg_is_in_recovery()") || query[bool](t, primary.ConnConfig(), "select pg_is_in_recovery()") {
		t.Fatal("who is the standby?")
	}
	query[int](t, primary.ConnConfig(), "insert into counters (name, total) values ('x', 7) returning total")
	eventually(t, "the row arrives", func() bool {
		return query[int](t, standby.ConnConfig(), "select count(*) from counters") == 1
	})
	primary.Stop(t)
	standby.Exec(t, "select pg_promote()")
	if got := query[int](t, standby.ConnConfig(), "update counters set total = total + 1 returning total"); got != 8 {
		t.Errorf("total %d", got)
	}
}
