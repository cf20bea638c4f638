package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/root/layout"
	"orch/internal/testdb"
)

// join joins and lets go at the test's end.
func mustJoin(t *testing.T, path string, pool *pgxpool.Pool, cfg Config) *Root {
	t.Helper()
	r, err := Join(t.Context(), path, pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestJoin_BumpsTheBoundRootOnce(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	served := bind(t, path, pool, Config{Host: "one"})
	joined := mustJoin(t, path, pool, Config{Host: "two"})
	if served.Generation() != 1 || joined.Generation() != 2 || joined.ID() != served.ID() {
		t.Errorf("generations %d, %d; roots %s, %s", served.Generation(), joined.Generation(), served.ID(), joined.ID())
	}
	fits(t, path, pool, 2)
}

func TestRootIsDesertedWhenNobodyElseWorksInIt(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	served := bind(t, path, pool, Config{})
	want := func(when string, want bool) {
		t.Helper()
		if got := served.Deserted(); got != want || served.Others() == want {
			t.Errorf("%s: deserted %v, others %v", when, got, served.Others())
		}
	}
	want("alone", true)
	joined := mustJoin(t, path, pool, Config{})
	want("with another one", false)
	if err := joined.Close(); err != nil {
		t.Fatal(err)
	}
	want("alone again", true)
	served.lock.in = false // the filesystem doesn't do that
	if served.Deserted() {
		t.Error("a guess")
	}
}

// untouched describes everything that a start could change.
func untouched(t *testing.T, path string, pool *pgxpool.Pool) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&text, name, info.Mode(), info.Size(), info.ModTime())
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var instances, roots string
	scan(t, pool, "select string_agg(i.xmin::text || i::text, ' ') from instance i", &instances)
	scan(t, pool, "select coalesce(string_agg(r.xmin::text || r::text, ' '), '') from roots r", &roots)
	return text.String() + instances + roots
}

// Whatever isn't fit to be joined is waited for or refused without a trace.
func TestJoin_ChangesNothingInARootThatIsNotBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		bound  bool // made by Bind before
		spoil  func(t *testing.T, path string, pool *pgxpool.Pool)
		cfg    Config
		reason string // "": refused
		words  string
	}{
		{name: "missing", reason: "root_missing", words: "orch serve"},
		{name: "empty", reason: "root_unbound", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "prepared", reason: "root_unbound", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			if err := layout.Prepare(path); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "without its lock", bound: true, reason: "root_unbound", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			if err := os.Remove(filepath.Join(path, layout.Lock)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "created by a server that died before the row", bound: true, reason: "root_unbound", spoil: func(t *testing.T, path string, pool *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation, m.Nonce = 0, uuid.Nil })
			exec(t, pool, "delete from roots")
		}},
		{name: "set-up unconfigured", bound: true, reason: "setup_pending", spoil: func(t *testing.T, _ string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update instance set setup = 'unconfigured'")
		}},
		{name: "set-up bootstrapping", bound: true, reason: "setup_pending", spoil: func(t *testing.T, _ string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update instance set setup = 'bootstrapping'")
		}},
		{name: "foreign", bound: true, words: "another database", spoil: func(t *testing.T, _ string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update instance set id = gen_random_uuid(), setup = 'unconfigured'")
		}},
		{name: "not for testing", bound: true, cfg: Config{Testing: true}, words: "without --testing"},
		{name: "the database for testing", bound: true, words: "the database is marked for testing", spoil: func(t *testing.T, _ string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update instance set testing = true")
		}},
		{name: "garbage", bound: true, words: "backup", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			if err := os.WriteFile(markerFile(path), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "behind", bound: true, words: "copy", spoil: func(t *testing.T, _ string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update roots set generation = 9")
		}},
		{name: "ahead", bound: true, words: "older backup", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation = 9 })
		}},
		{name: "a file", words: "no directory", spoil: func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			if tt.bound {
				if err := bind(t, path, pool, Config{}).Close(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.spoil != nil {
				tt.spoil(t, path, pool)
			}
			before := untouched(t, path, pool)
			r, err := Join(t.Context(), path, pool, tt.cfg)
			if err == nil {
				r.Close()
				t.Fatal("joined")
			}
			if Reason(err) != tt.reason || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("reason %q of %v", Reason(err), err)
			}
			if after := untouched(t, path, pool); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
			if l, err := openLock(path, 0); err == nil {
				if err := errors.Join(l.try(unix.LOCK_EX), l.close()); err != nil {
					t.Errorf("the lock isn't let go: %v", err)
				}
			}
		})
	}
}

// From nothing to the first claim: what the worker waits for, one after the other.
func TestJoin_WaitsForTheServerStepByStep(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	reason := func() string {
		r, err := Join(t.Context(), path, pool, Config{})
		if err == nil {
			r.Close()
		}
		return Reason(err)
	}
	if got := reason(); got != "root_missing" {
		t.Fatal(got)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := reason(); got != "root_unbound" {
		t.Fatal(got)
	}
	seen := map[string]string{}
	r := bind(t, path, pool, Config{at: func(step string) { seen[step] = reason() }})
	for step, want := range map[string]string{
		"create locked": "root_unbound", "create begun": "root_unbound", "create marked": "setup_pending", "locked": "setup_pending",
		"key taken": "setup_pending", "intended": "setup_pending", "written": "setup_pending",
	} {
		if seen[step] != want {
			t.Errorf("at %q it waits for %q instead of %q", step, seen[step], want)
		}
	}
	if joined := mustJoin(t, path, pool, Config{}); joined.Generation() <= r.Generation() {
		t.Errorf("generation %d after %d", joined.Generation(), r.Generation())
	}
}

func TestJoin_RefusesALockedRootAndNamesWhoHasIt(t *testing.T) {
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
		t.Fatal(err)
	}
	before := untouched(t, path, pool)
	_, err = Join(t.Context(), path, pool, Config{Wait: time.Millisecond})
	if !errors.Is(err, ErrInUse) || Reason(err) != "" || !strings.Contains(err.Error(), "root_in_use") {
		t.Fatal(err)
	}
	if who := fmt.Sprintf("with pid %d", os.Getpid()); !strings.Contains(err.Error(), who) {
		t.Errorf("%q isn't in %q", who, err)
	}
	if untouched(t, path, pool) != before {
		t.Error("changed")
	}
}

func TestJoin_AStopEndsTheWait(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	holdKey(t, pool)
	cause := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg := Config{Wait: time.Hour, at: func(step string) {
		if step == "fenced" {
			cancel(cause)
		}
	}}
	if _, err := Join(ctx, path, pool, cfg); !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	fits(t, path, pool, 1)
}

// The check of the schema comes under the lock and before anything else.
func TestBindAndJoin_VerifyBeforeTheyLookAtTheDatabase(t *testing.T) {
	t.Parallel()
	newer := errors.New("schema is newer")
	calls := 0
	bind(t, dir(t), testdb.New(t), Config{Verify: func(context.Context) error { calls++; return nil }})
	if calls != 1 {
		t.Errorf("the schema was looked at %d times", calls)
	}
	for name, open := range starts() {
		pool, path := testdb.New(t), dir(t)
		bind(t, path, pool, Config{})
		exec(t, pool, "drop table roots cascade")
		before, steps := readText(t, path), []string{}
		_, err := open(t.Context(), path, pool, Config{
			at:     func(step string) { steps = append(steps, step) },
			Verify: func(context.Context) error { return newer },
		})
		if !errors.Is(err, newer) || readText(t, path) != before || strings.Join(steps, " ") != "locked" {
			t.Errorf("%s: %v after %q", name, err, steps)
		}
	}
}
