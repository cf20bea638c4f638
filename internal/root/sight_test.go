package root

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/testdb"
)

// seen returns when the database saw the root last.
func seen(t *testing.T, pool *pgxpool.Pool) (at time.Time) {
	t.Helper()
	scan(t, pool, `select seen_at from roots`, &at)
	return at
}

func TestRootIsSeenWhileItWorksAndWhileItWaits(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{})
	before := seen(t, pool)
	if err := r.Sight(t.Context(), pool); err != nil || !seen(t, pool).After(before) {
		t.Errorf("bound: seen %s, then %s, %v", before, seen(t, pool), err)
	}
	bind(t, path, pool, Config{}) // another process starts
	before = seen(t, pool)
	if err := r.Sight(t.Context(), pool); err != nil || !seen(t, pool).After(before) {
		t.Errorf("an older process: seen %s, then %s, %v", before, seen(t, pool), err)
	}
	before = seen(t, pool)
	if err := SightWaiting(t.Context(), path, pool); err != nil || !seen(t, pool).After(before) {
		t.Errorf("waiting: seen %s, then %s, %v", before, seen(t, pool), err)
	}
}

// Nobody waits in the database for a start key: whoever does can't say meanwhile what it waits for.
func TestRootThatAnotherProcessStartsOnIsNotWaitedForToBeSeen(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	path := made(t, pool)
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "1s" // only so that whoever waits all the same fails
	waiter, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()
	starter, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = starter.Rollback(t.Context()) }()
	if _, err := starter.Exec(t.Context(), `select from roots for update`); err != nil {
		t.Fatal(err)
	}
	before := seen(t, pool)
	if err := SightWaiting(t.Context(), path, waiter); !errors.Is(err, errUnseen) {
		t.Errorf("%v, want %v", err, errUnseen)
	}
	if err := starter.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := SightWaiting(t.Context(), path, waiter); err != nil || !seen(t, pool).After(before) {
		t.Errorf("the key is free: seen %s, then %s, %v", before, seen(t, pool), err)
	}
}

func TestRootThatDoesNotFitIsNotSeen(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	path := made(t, pool)
	copied := dir(t)
	if err := os.CopyFS(copied, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	bind(t, path, pool, Config{}) // the original has gone on
	before := seen(t, pool)
	for name, waiting := range map[string]string{"a copy": copied, "none": filepath.Join(path, "none")} {
		if err := SightWaiting(t.Context(), waiting, pool); err == nil || !seen(t, pool).Equal(before) {
			t.Errorf("%s was seen: %v", name, err)
		}
	}
	foreign := testdb.New(t)
	if err := SightWaiting(t.Context(), path, foreign); err == nil {
		t.Error("seen by a database that it doesn't belong to")
	}
}
