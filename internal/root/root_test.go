package root

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/testdb"
)

// dir returns the path of a root that isn't there yet.
func dir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "root")
}

// bind binds and lets go at the test's end.
func bind(t *testing.T, path string, pool *pgxpool.Pool, cfg Config) *Root {
	t.Helper()
	r, err := Bind(t.Context(), path, pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// refuse binds and expects an error of type E whose text contains all words.
func refuse[E error](t *testing.T, path string, pool *pgxpool.Pool, cfg Config, words ...string) {
	t.Helper()
	r, err := Bind(t.Context(), path, pool, cfg)
	if err == nil {
		r.Close()
		t.Fatal("bound")
	}
	if _, ok := errors.AsType[E](err); !ok {
		t.Fatalf("%T: %v", err, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q isn't in %q", word, err)
		}
	}
}

func scan(t *testing.T, pool *pgxpool.Pool, sql string, into ...any) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(into...); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestBind_NewThenAgain(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{Host: "one"})
	var (
		setup string
		inst  uuid.UUID
		row   struct {
			id         uuid.UUID
			host, path string
			generation int64
		}
	)
	scan(t, pool, "select id, setup from instance", &inst, &setup)
	scan(t, pool, "select id, host, path, generation from roots", &row.id, &row.host, &row.path, &row.generation)
	if setup != "ready" || inst != r.InstanceID() || row.id != r.ID() || row.host != "one" || row.path != path || row.generation != r.Generation() {
		t.Fatalf("setup %s, instance %s, row %+v; root %s of %s", setup, inst, row, r.ID(), r.InstanceID())
	}

	// A second process of the same root: both hold the lock shared. It has moved, too.
	moved := path + "-moved"
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	again := bind(t, moved, pool, Config{Host: "two"})
	if again.ID() != r.ID() {
		t.Fatalf("another id: %s, %s", r.ID(), again.ID())
	}
	scan(t, pool, "select host, path from roots", &row.host, &row.path)
	if row.host != "two" || row.path != moved {
		t.Fatalf("not followed: %+v", row)
	}
	if err := errors.Join(again.Close(), again.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestBind_TwoRootsOfOneDatabase(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	a, b := bind(t, dir(t), pool, Config{}), bind(t, dir(t), pool, Config{})
	if a.ID() == b.ID() || a.InstanceID() != b.InstanceID() {
		t.Fatalf("%s of %s, %s of %s", a.ID(), a.InstanceID(), b.ID(), b.InstanceID())
	}
}

func TestBind_ManyAtOnceCreateOne(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	ids := make([]uuid.UUID, 12)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			r, err := Bind(t.Context(), path, pool, Config{Wait: 30 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.ID()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	var rows int
	scan(t, pool, "select count(*) from roots", &rows)
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("ids differ: %v", ids)
			break
		}
	}
}

func TestBind_ForeignMarker(t *testing.T) {
	t.Parallel()
	path := dir(t)
	bind(t, path, testdb.New(t), Config{})
	other := testdb.New(t)
	refuse[*ForeignError](t, path, other, Config{}, filepath.Join(path, markerName), "ORCH_DATABASE_URL", "ORCH_ROOT")
	var (
		rows  int
		setup string
	)
	scan(t, other, "select count(*) from roots", &rows)
	scan(t, other, "select setup from instance", &setup)
	if rows != 0 || setup != "unconfigured" {
		t.Fatalf("the refused database was written: %d rows, %s", rows, setup)
	}
}

func TestBind_TestingMark(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{Testing: true})
	refuse[*TestingError](t, path, pool, Config{}, "start with --testing", path)
	second := dir(t)
	refuse[*TestingError](t, second, pool, Config{}, "the database")
	if _, err := os.Stat(filepath.Join(second, markerName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a marker was written: %v", err)
	}

	pool, path = testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	refuse[*TestingError](t, path, pool, Config{Testing: true}, "without --testing")
}

func TestBind_GarbageMarker(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	id := uuid.NewString()
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "array": "[]", "cut": `{"instance_id": "` + id, "no ids": `{"generation": 1}`,
		"bad id": `{"instance_id":"x","root_id":"y"}`, "more": `{"instance_id":"` + id + `","root_id":"` + id + `"} {}`,
		"unknown field": `{"instance_id":"` + id + `","root_id":"` + id + `","colour":"red"}`,
		"negative":      `{"instance_id":"` + id + `","root_id":"` + id + `","generation":-1}`,
	} {
		path := dir(t)
		if err := Prepare(path); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, markerName)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refuse[*MarkerError](t, path, pool, Config{}, file, "backup")
		if kept, err := os.ReadFile(file); err != nil || string(kept) != text {
			t.Errorf("%s: marker changed to %q, %v", name, kept, err)
		}
	}
}

func TestBind_Locked(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	if err := bind(t, path, pool, Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	maintenance, err := openLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer maintenance.close()
	if ok, err := maintenance.try(unix.LOCK_EX); !ok || err != nil {
		t.Fatalf("the closed root is still locked: %v", err)
	}
	if _, err := Bind(t.Context(), path, pool, Config{Wait: time.Millisecond}); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	cause := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Bind(ctx, path, pool, Config{Wait: time.Hour}); !errors.Is(err, cause) {
		t.Fatal(err)
	}

	// One that waits gets it as soon as the maintenance is over; and the other way round, it keeps maintenance out.
	bound := make(chan *Root)
	go func() {
		r, err := Bind(t.Context(), path, pool, Config{Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		bound <- r
	}()
	if err := maintenance.unlock(); err != nil {
		t.Fatal(err)
	}
	r := <-bound
	if ok, err := maintenance.try(unix.LOCK_EX); ok || err != nil {
		t.Fatalf("a bound root was locked exclusively: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// Every point where a creator can die is one that the next Bind goes on from.
func TestBind_AfterACrashedCreation(t *testing.T) {
	t.Parallel()
	t.Run("set-up begun", func(t *testing.T) {
		t.Parallel()
		pool, path := testdb.New(t), dir(t)
		exec(t, pool, "update instance set setup = 'bootstrapping'")
		bind(t, path, pool, Config{})
		var setup string
		scan(t, pool, "select setup from instance", &setup)
		if setup != "ready" {
			t.Error(setup)
		}
	})
	t.Run("marker half written", func(t *testing.T) {
		t.Parallel()
		pool, path := testdb.New(t), dir(t)
		if err := Prepare(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, markerName+".tmp"), []byte(`{"inst`), 0o600); err != nil {
			t.Fatal(err)
		}
		bind(t, path, pool, Config{})
	})
	t.Run("marker written, not committed", func(t *testing.T) {
		t.Parallel()
		pool, path := testdb.New(t), dir(t)
		r := bind(t, path, pool, Config{})
		exec(t, pool, "delete from roots")
		exec(t, pool, "update instance set setup = 'bootstrapping'")
		again := bind(t, path, pool, Config{})
		var (
			id    uuid.UUID
			setup string
		)
		scan(t, pool, "select roots.id, setup from roots, instance", &id, &setup)
		if again.ID() != r.ID() || id != r.ID() || setup != "ready" {
			t.Errorf("%s, %s, %s, %s", r.ID(), again.ID(), id, setup)
		}
	})
	t.Run("database gone meanwhile", func(t *testing.T) {
		t.Parallel()
		pool, path := testdb.New(t), dir(t)
		cancelled, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := Bind(cancelled, path, pool, Config{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		bind(t, path, pool, Config{})
	})
}

func TestBind_RestoredCopies(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{})
	exec(t, pool, "update roots set generation = 3")
	refuse[*PairingError](t, path, pool, Config{}, "generation 0", "copy")
	m := marker{InstanceID: r.InstanceID(), RootID: r.ID(), Generation: 4}
	if err := writeMarker(path, m); err != nil {
		t.Fatal(err)
	}
	refuse[*PairingError](t, path, pool, Config{}, "generation 4", "the database seems")
	exec(t, pool, "delete from roots")
	refuse[*PairingError](t, path, pool, Config{}, "unknown to the database")
	exec(t, pool, "insert into roots (id, host, path, generation) values ($1, '', '', 4)", r.ID())
	if again := bind(t, path, pool, Config{}); again.Generation() != 4 {
		t.Errorf("generation %d", again.Generation())
	}
}

func TestBind_SchemaMissing(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testdb.URL(testdb.Empty(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	path := dir(t)
	if r, err := Bind(t.Context(), path, pool, Config{}); err == nil {
		r.Close()
		t.Fatal("bound")
	}
	if _, err := os.Stat(filepath.Join(path, markerName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a marker was written: %v", err)
	}
}

func TestMarker_File(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{Testing: true})
	text, err := os.ReadFile(filepath.Join(path, markerName))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["instance_id"] != r.InstanceID().String() || fields["root_id"] != r.ID().String() || fields["generation"] != 0.0 || fields["testing"] != true || len(fields) != 4 {
		t.Errorf("%v", fields)
	}
}
