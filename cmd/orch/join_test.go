package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"orch/internal/db"
	"orch/internal/root"
	"orch/internal/testdb"
	"orch/migrations"
)

func TestWorkerStartedBeforeItsRootWaitsAndBumpsOnceAndRunsAJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	data.exec(`update instance set setup = 'unconfigured'`)

	joined := p.at("joined")
	w := joined.start("worker")
	w.waits("root_missing")
	if _, err := os.Lstat(joined.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made the root: %v", err)
	}
	if err := os.Mkdir(joined.root, 0o755); err != nil {
		t.Fatal(err)
	}
	w.waits("root_unbound")
	if entries, err := os.ReadDir(joined.root); err != nil || len(entries) > 0 {
		t.Errorf("it wrote into a root that isn't bound: %v, %v", entries, err)
	}
	// The root becomes bound in one step, so that the worker can't meet it on the way.
	if err := errors.Join(os.Remove(joined.root), os.Rename(p.root, joined.root)); err != nil {
		t.Fatal(err)
	}
	w.waits("setup_pending")
	data.exec(`update instance set setup = 'bootstrapping'`)
	if got := data.value(generation) + data.value(claims); got != "10" {
		t.Errorf("generation and claims %s while the set-up was pending, want 1 and 0", got)
	}
	data.exec(`update instance set setup = 'ready'`)
	w.works()
	data.becomes("done", theTask)
	if got := data.value(generation); got != "2" {
		t.Errorf("generation %s, want 2", got)
	}
	if got := w.waited(); !slices.Equal(got, []string{"root_missing", "root_unbound", "setup_pending"}) {
		t.Errorf("waited for %v, each once", got)
	}
	w.stops()
}

func TestWorkerOfAForeignRootRefusesAndLetsGoOfTheRoot(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	p.onDatabase(testdb.Empty(t))
	p.bound()
	elsewhere := p.at("elsewhere")
	url := testdb.Empty(t)
	data := elsewhere.onDatabase(url)
	elsewhere.write("elsewhere/orch.yaml", p.read("root/orch.yaml"))
	elsewhere.bound()

	foreign := *elsewhere
	foreign.root = p.root
	w := foreign.start("worker")
	said := w.refuses("belongs to another database", "ORCH_DATABASE_URL")
	for _, secret := range []string{testdb.URL(url), "postgres://", url.Host} {
		if strings.Contains(said, secret) {
			t.Errorf("it printed %q", secret)
		}
	}
	if got := data.value(claims); got != "0" {
		t.Errorf("%s claims", got)
	}
	lock := lockRoot(t, p.root)
	_ = lock.Close()
}

// lockRoot takes the root's lock as maintenance does.
func lockRoot(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(path, "root.lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	return file
}

func TestWorkerRefusesARootThatIsHeldExclusively(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	lock := lockRoot(t, p.root)
	defer func() { _ = lock.Close() }()
	p.start("worker").refuses("root_in_use")
	if got := data.value(generation) + data.value(claims); got != "10" {
		t.Errorf("generation and claims %s, want 1 and 0", got)
	}
}

func TestWorkerRetriesABusyStartKeyUntilItIsFree(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	starter := data.connect()
	if _, err := starter.Exec(t.Context(), `begin; select from roots for update`); err != nil {
		t.Fatal(err)
	}
	w := p.start("worker")
	w.waits("start_busy")
	if got := data.value(generation) + data.value(claims); got != "10" {
		t.Errorf("generation and claims %s, want 1 and 0", got)
	}
	if _, err := starter.Exec(t.Context(), `rollback`); err != nil {
		t.Fatal(err)
	}
	w.works()
	data.becomes("done", theTask)
	if got := data.value(generation); got != "2" {
		t.Errorf("generation %s, want 2", got)
	}
	w.stops()
}

func TestWorkerWaitsForAPendingMigrationWithoutBumpingAndStartsAfterMigrate(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	url := testdb.Empty(t)
	data := p.onDatabase(url) // a worker doesn't migrate, whatever ORCH_AUTO_MIGRATE says
	first, err := fs.ReadFile(migrations.Files, "0001_orch.sql")
	if err != nil {
		t.Fatal(err)
	}
	old, err := db.NewMigrator(fstest.MapFS{"0001_orch.sql": {Data: first}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Apply(t.Context(), data.connect()); err != nil {
		t.Fatal(err)
	}
	pool, err := db.Open(t.Context(), db.Config{Conn: url})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	bound, err := root.Bind(t.Context(), p.root, pool, root.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bound.Close(); err != nil {
		t.Fatal(err)
	}

	w := p.start("worker")
	w.waits("pending_migration")
	if got := data.value(generation); got != "1" {
		t.Errorf("generation %s while a migration was pending, want 1", got)
	}
	if out := p.orch("migrate"); !strings.Contains(out, "applied 0002_") {
		t.Errorf("orch migrate: %s", out)
	}
	w.works()
	if got := data.value(generation); got != "2" {
		t.Errorf("generation %s, want 2", got)
	}
	w.stops()
}

func TestWorkerRefusesASchemaThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ sql, says string }{
		"newer":   {`insert into schema_migrations (version, name, sha256) values (99, '0099_later', 'x')`, "newer orch"},
		"drifted": {`update schema_migrations set sha256 = 'x' where version = 1`, "never edit a migration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, committer)
			data := p.onDatabase(testdb.Empty(t))
			p.bound()
			data.exec(test.sql)
			p.start("worker").refuses(test.says)
			if got := data.value(generation) + data.value(claims); got != "10" {
				t.Errorf("generation and claims %s, want 1 and 0", got)
			}
		})
	}
}
