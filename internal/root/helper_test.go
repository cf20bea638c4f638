package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// made returns the path of a root of generation 1 in which nobody works. Others may be made on the same database meanwhile.
func made(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	path := dir(t)
	if err := bind(t, path, pool, Config{Wait: time.Minute}).Close(); err != nil {
		t.Fatal(err)
	}
	return path
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
	if host := pool.Config().ConnConfig.Host; strings.Contains(err.Error(), host) {
		t.Errorf("%q tells how to connect", err)
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

// state returns what the marker and the row say.
func state(t *testing.T, path string, pool *pgxpool.Pool) pair {
	t.Helper()
	b := binder{path: path, pool: pool}
	p, err := b.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fits expects both sides to agree on that generation, and no start to have left anything.
func fits(t *testing.T, path string, pool *pgxpool.Pool, generation int64) {
	t.Helper()
	p := state(t, path, pool)
	if p.row != (row{generation, p.marker.Nonce}) || p.marker.Generation != generation || p.marker.Next != uuid.Nil || p.instance.Setup != setupReady {
		t.Errorf("not both of generation %d: %+v", generation, p)
	}
	left, err := filepath.Glob(filepath.Join(path, fencePrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// mark replaces the marker by a changed one.
func mark(t *testing.T, path string, change func(*marker)) {
	t.Helper()
	m, err := readMarker(path)
	if err != nil {
		t.Fatal(err)
	}
	change(&m)
	if err := createMarker(path, m); err != nil {
		t.Fatal(err)
	}
}

// copied returns the path of a copy of the root.
func copied(t *testing.T, path string) string {
	t.Helper()
	to := dir(t)
	if err := os.CopyFS(to, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	return to
}

// works registers a worker of the root, which beats now.
func works(t *testing.T, pool *pgxpool.Pool, r *Root) {
	t.Helper()
	exec(t, pool, `insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes)
		values ($1, $2, 'builder', 'b', 'n', 4711, 1, '1.0.0', '{}')`, uuid.New(), r.ID())
}

// starts are the two ways in.
func starts() map[string]func(context.Context, string, *pgxpool.Pool, Config) (*Root, error) {
	return map[string]func(context.Context, string, *pgxpool.Pool, Config) (*Root, error){"bind": Bind, "join": Join}
}

// holdKey takes the start key as another starter would.
func holdKey(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	return hold(t, pool, "select from roots for no key update")
}

// hold returns a transaction with what the statement locks.
func hold(t *testing.T, pool *pgxpool.Pool, sql string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	})
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return tx
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(markerFile(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
