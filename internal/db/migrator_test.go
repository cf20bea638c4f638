package db_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/testdb"
	"orch/migrations"
)

func files(texts ...string) fs.FS {
	fsys := fstest.MapFS{}
	for i, text := range texts {
		fsys[fmt.Sprintf("%04d_step.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func migrator(t *testing.T, fsys fs.FS) *db.Migrator {
	t.Helper()
	m, err := db.NewMigrator(fsys, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func apply(t *testing.T, m *db.Migrator, conn *pgx.Conn) []string {
	t.Helper()
	applied, err := m.Apply(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return names(applied)
}

func names(all []db.Migration) []string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func statusErr(t *testing.T, m *db.Migrator, conn *pgx.Conn) error {
	t.Helper()
	status, err := m.Status(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return status.Err()
}

const (
	createA = "create table a (id int); create table a2 (id int);"
	createB = "create table b (id int);"
)

func TestApplyInOrderAndOnce(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	one, two := migrator(t, files(createA)), migrator(t, files(createA, createB))
	if err := statusErr(t, one, conn); !errors.Is(err, db.ErrNotMigrated) {
		t.Errorf("empty database: %v", err)
	}
	if got := apply(t, one, conn); !slices.Equal(got, []string{"0001_step"}) {
		t.Errorf("first: %q", got)
	}
	err := statusErr(t, two, conn)
	if pending, ok := errors.AsType[*db.PendingError](err); !ok || !slices.Equal(names(pending.Pending), []string{"0002_step"}) {
		t.Errorf("pending: %v", err)
	}
	wantCode(t, err, db.CodePending)
	if got := apply(t, two, conn); !slices.Equal(got, []string{"0002_step"}) {
		t.Errorf("second: %q", got)
	}
	if got := apply(t, two, conn); got != nil {
		t.Errorf("again: %q", got)
	}
	if err := statusErr(t, two, conn); err != nil {
		t.Errorf("up to date: %v", err)
	}
	exec(t, conn, "insert into a2 select id from b")
}

func TestStatusChangesNothing(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	if err := statusErr(t, migrator(t, files(createA)), conn); !errors.Is(err, db.ErrNotMigrated) {
		t.Error(err)
	}
	var exists bool
	if err := conn.QueryRow(t.Context(), "select to_regclass('schema_migrations') is not null").Scan(&exists); err != nil || exists {
		t.Errorf("ledger exists: %v, %v", exists, err)
	}
}

func TestDriftIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	apply(t, migrator(t, files(createA)), conn)
	edited := migrator(t, files(createA+" -- edited", createB))
	_, err := edited.Apply(t.Context(), conn)
	if drift, ok := errors.AsType[*db.DriftError](err); !ok || len(drift.Drifted) != 1 || drift.Drifted[0].Applied == nil {
		t.Fatalf("edited file: %v", err)
	}
	wantCode(t, err, db.CodeDrift)
	wantCode(t, statusErr(t, edited, conn), db.CodeDrift)
	if _, err := conn.Exec(t.Context(), "select from b"); err == nil {
		t.Error("something was applied over a drift")
	}
}

func TestGapInTheLedgerIsDrift(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	m := migrator(t, files(createA, createB))
	apply(t, m, conn)
	exec(t, conn, "delete from schema_migrations where version = 1")
	err := statusErr(t, m, conn)
	if drift, ok := errors.AsType[*db.DriftError](err); !ok || drift.Drifted[0].Applied != nil || !strings.Contains(err.Error(), "left out") {
		t.Errorf("gap: %v", err)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	apply(t, migrator(t, files(createA, createB)), conn)
	old := migrator(t, files(createA))
	_, err := old.Apply(t.Context(), conn)
	if ahead, ok := errors.AsType[*db.AheadError](err); !ok || ahead.Ahead[0].Name != "0002_step" {
		t.Errorf("newer database: %v", err)
	}
	wantCode(t, statusErr(t, old, conn), db.CodeAhead)
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	broken := migrator(t, files(createA, "create table half (id int); select 1/0"))
	applied, err := broken.Apply(t.Context(), conn)
	if err == nil || !strings.Contains(err.Error(), "apply 0002_step") || !slices.Equal(names(applied), []string{"0001_step"}) {
		t.Errorf("broken: %q, %v", names(applied), err)
	}
	exec(t, conn, "select from a")
	if _, err := conn.Exec(t.Context(), "select from half"); err == nil {
		t.Error("half a migration stayed")
	}
	if got := apply(t, migrator(t, files(createA, createB)), conn); !slices.Equal(got, []string{"0002_step"}) {
		t.Errorf("repaired: %q", got)
	}
}

func TestMigrationMustNotEndItsTransaction(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	_, err := migrator(t, files(createA+"commit;")).Apply(t.Context(), conn)
	if err == nil || !strings.Contains(err.Error(), "must not end") {
		t.Errorf("commit inside: %v", err)
	}
}

func TestStatementTimeoutDoesNotEndAMigration(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	exec(t, conn, "set statement_timeout = 50; ")
	apply(t, migrator(t, files("select pg_sleep(0.3);")), conn)
	var timeout string
	if err := conn.QueryRow(t.Context(), "show statement_timeout").Scan(&timeout); err != nil || timeout != "50ms" {
		t.Errorf("afterwards the timeout is %q, %v", timeout, err)
	}
}

func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	const programs = 6
	m := migrator(t, files(createA, "select pg_sleep(0.05);", createB))
	type outcome struct {
		applied []string
		err     error
	}
	outcomes := make(chan outcome, programs)
	for range programs {
		conn := connect(t, cfg)
		go func() {
			applied, err := m.Apply(t.Context(), conn)
			outcomes <- outcome{names(applied), err}
		}()
	}
	var all []string
	for range programs {
		o := receive(t, outcomes, "a migration")
		if o.err != nil {
			t.Error(o.err)
		}
		all = append(all, o.applied...)
	}
	slices.Sort(all)
	if !slices.Equal(all, []string{"0001_step", "0002_step", "0003_step"}) {
		t.Errorf("applied %q", all)
	}
}

func TestLoadMigrationsRefuses(t *testing.T) {
	t.Parallel()
	file := func(names ...string) fs.FS {
		fsys := fstest.MapFS{}
		for _, name := range names {
			fsys[name] = &fstest.MapFile{Data: []byte("select 1")}
		}
		return fsys
	}
	for want, fsys := range map[string]fs.FS{
		"there are none":     file("readme.txt"),
		"number 0001":        file("0002_b.sql"),
		"number 0002":        file("0001_a.sql", "0003_c.sql"),
		"0001_b.sql stands":  file("0001_a.sql", "0001_b.sql"),
		"isn't named":        file("1_a.sql"),
		"0001_A.sql isn't n": file("0001_A.sql"),
	} {
		if _, err := db.LoadMigrations(fsys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	a := migrator(t, files(createA))
	if a.Hash() != migrator(t, files(createA)).Hash() || a.Hash() == migrator(t, files(createA, createB)).Hash() ||
		a.Hash() == migrator(t, files(createB)).Hash() {
		t.Error("the hash doesn't follow the files")
	}
}

// TestOwnMigrations applies the real schema.
func TestOwnMigrations(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Empty(t))
	m := migrator(t, migrations.Files)
	apply(t, m, conn)
	if err := statusErr(t, m, conn); err != nil {
		t.Error(err)
	}
}
