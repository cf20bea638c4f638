package root

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/root/layout"
	"orch/internal/testdb"
)

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
	if setup != "ready" || inst != r.InstanceID() || row.id != r.ID() || row.host != "one" || row.path != path || row.generation != 1 || r.Generation() != 1 {
		t.Fatalf("setup %s, instance %s, row %+v; root %s of %s", setup, inst, row, r.ID(), r.InstanceID())
	}

	// A second process of the same root: both hold the lock shared. It has moved, too.
	moved := path + "-moved"
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	again := bind(t, moved, pool, Config{Host: "two"})
	if again.ID() != r.ID() || again.Generation() != 2 {
		t.Fatalf("another id: %s, %s; generation %d", r.ID(), again.ID(), again.Generation())
	}
	fits(t, moved, pool, 2)
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
	fits(t, path, pool, int64(len(ids)))
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
	refuse[*ForeignError](t, path, other, Config{}, filepath.Join(path, layout.Marker), "ORCH_DATABASE_URL", "ORCH_ROOT")
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
	if _, err := os.Stat(filepath.Join(second, layout.Marker)); !errors.Is(err, fs.ErrNotExist) {
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
		if err := layout.Prepare(path); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, layout.Marker)
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
	maintenance, err := openLock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer maintenance.close()
	if err := maintenance.try(unix.LOCK_EX); err != nil {
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
	if err := maintenance.try(unix.LOCK_EX); !errors.Is(err, ErrInUse) {
		t.Fatalf("a bound root was locked exclusively: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
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
	if _, err := os.Stat(filepath.Join(path, layout.Marker)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a marker was written: %v", err)
	}
}

func TestMarker_File(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{Testing: true})
	text, err := os.ReadFile(filepath.Join(path, layout.Marker))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["instance_id"] != r.InstanceID().String() || fields["root_id"] != r.ID().String() || fields["generation"] != 1.0 || fields["testing"] != true || fields["nonce"] == "" || len(fields) != 5 {
		t.Errorf("%v", fields)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	r := &Root{path: "/r"}
	for got, want := range map[string]string{
		r.Path(): "/r", r.RunsDir(): "/r/runs", r.MirrorsDir(): "/r/mirrors", r.WorkspacesDir(): "/r/workspaces",
		r.CheckoutsDir(): "/r/checkouts", r.HomesDir(): "/r/homes", r.SocketPath(): "/r/orch.sock", PGDir("/r"): "/r/pg",
	} {
		if got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}
