package app

import (
	"testing"

	"orch/internal/httpapi"
	"orch/internal/lifespan"
	"orch/internal/testdb"
)

func TestReadinessLooksAtDatabaseAndSchema(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	r := &readiness{server: &server{life: lifespan.New(lifespan.Config{})}, system: &system{pool: pool}}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	says := func(name, status, code string) {
		t.Helper()
		for _, check := range r.Check(t.Context()) {
			if check.Name != name {
				continue
			}
			if got := orNone(check.Code); check.Status != status || got != code {
				t.Errorf("%s is %s (%s), want %s (%s)", name, check.Status, got, status, code)
			}
			return
		}
		t.Errorf("no check of %s", name)
	}
	says("database", httpapi.CheckOK, "")
	says("schema", httpapi.CheckOK, "")
	exec(`update instance set migrating_to = 99, migrating_until = clock_timestamp() + interval '1 hour'`)
	says("schema", httpapi.CheckFailed, "newer_migration_running")
	exec(`update instance set migrating_to = null, migrating_until = null`)
	exec(`insert into schema_migrations (version, name, sha256) values (99, '0099_later', 'x')`)
	says("schema", httpapi.CheckFailed, "schema_ahead")
	pool.Close()
	if checks := r.Check(t.Context()); checks[0].Name != "database" || checks[0].Status != httpapi.CheckFailed || checks[1].Name == "schema" {
		t.Errorf("without a database: %+v", checks)
	}
}

func TestReadinessSaysInWhatStateAServiceIs(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]lifespan.Status{
		"stale": {State: lifespan.StateStale, LastError: "panic"}, // it came back from that
		"panic": {State: lifespan.StateBackoff, LastError: "panic"},
		"":      {State: lifespan.StateReady, LastError: "panic"},
	} {
		if got := orNone(checkOf(status).Code); got != want {
			t.Errorf("%+v says %q, want %q", status, got, want)
		}
	}
}

func orNone(code *string) string {
	if code == nil {
		return ""
	}
	return *code
}
