package root

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"orch/internal/testdb"
)

func TestAccept_SetsBothSidesAboveEither(t *testing.T) {
	t.Parallel()
	for name, spoil := range acceptable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			r := bind(t, path, pool, Config{})
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			old := copied(t, path)
			spoil(t, path, pool)
			foreign := name == "foreign"
			if foreign {
				before := untouched(t, path, pool)
				_, err := Accept(t.Context(), path, pool, Config{})
				if _, ok := errors.AsType[*ForeignError](err); !ok || untouched(t, path, pool) != before {
					t.Fatalf("a foreign root was accepted unasked: %v", err)
				}
			}
			a, err := Accept(t.Context(), path, pool, Config{Rebind: foreign})
			if err != nil {
				t.Fatal(err)
			}
			if !a.Changed || a.Generation != 8 || a.Rebound != foreign || (a.RootID == r.ID()) == foreign {
				t.Errorf("%+v, root %s", a, r.ID())
			}
			if a.Found.Fits || a.Found.Marker.RootID != r.ID() || a.Found.Verdict == "" || (a.Found.Row == nil) != (name == "unknown" || foreign) {
				t.Errorf("found %+v", a.Found)
			}
			fits(t, path, pool, 8)
			if again := mustJoin(t, path, pool, Config{}); again.ID() != a.RootID || again.Generation() != 9 {
				t.Errorf("root %s, generation %d", again.ID(), again.Generation())
			}
			if r, err := Bind(t.Context(), old, pool, Config{}); err == nil {
				r.Close()
				t.Error("the copy is let in as well")
			}
		})
	}
}

func TestAccept_DoesNothingWhereNothingDiffers(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	before := untouched(t, path, pool)
	a, err := Accept(t.Context(), path, pool, Config{Rebind: true})
	if err != nil || a.Changed || a.Generation != 1 || a.RootID != r.ID() || !a.Found.Fits {
		t.Fatalf("%+v, %v", a, err)
	}
	if after := untouched(t, path, pool); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}

func TestAccept_Refusals(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	if _, err := Accept(t.Context(), path, pool, Config{}); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Accept(t.Context(), path, pool, Config{}); !errors.Is(err, ErrUnbound) {
		t.Error(err)
	}
	r := bind(t, path, pool, Config{})
	exec(t, pool, "update roots set generation = 7")
	if _, err := Accept(t.Context(), path, pool, Config{}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "with pid") {
		t.Errorf("while it is in use: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Accept(t.Context(), path, pool, Config{Testing: true})
	if _, ok := errors.AsType[*TestingError](err); !ok {
		t.Error(err)
	}
	exec(t, pool, "update instance set testing = true")
	_, err = Accept(t.Context(), path, pool, Config{})
	if _, ok := errors.AsType[*TestingError](err); !ok {
		t.Error(err)
	}
	exec(t, pool, "update instance set testing = false")
	tx := holdKey(t, pool)
	if _, err := Accept(t.Context(), path, pool, Config{Wait: time.Millisecond}); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, err := Accept(t.Context(), path, pool, Config{}); err != nil || a.Generation != 8 {
		t.Errorf("%+v, %v", a, err)
	}
}

// The lock says that nobody works in this directory, so a worker of its id that beats works in another one.
func TestAccept_RefusesACopyOfARootInUse(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	living := bind(t, path, pool, Config{})
	works(t, pool, living)
	old := copied(t, path)
	mustJoin(t, path, pool, Config{})
	before := untouched(t, old, pool)
	_, err := Accept(t.Context(), old, pool, Config{})
	if alive, ok := errors.AsType[*LivingError](err); !ok || alive.Host != "builder" || alive.PID != 4711 {
		t.Fatal(err)
	}
	if untouched(t, old, pool) != before {
		t.Error("changed")
	}
	exec(t, pool, "update workers set heartbeat_at = clock_timestamp() - $1::interval", livingFor+time.Second)
	if _, err := Accept(t.Context(), old, pool, Config{}); err != nil {
		t.Errorf("when it is dead: %v", err)
	}
	fits(t, old, pool, 3)
}

func TestInspect_TellsHowThingsAre(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	look := func(words string) Status {
		t.Helper()
		st, err := Inspect(t.Context(), path, pool, Config{})
		if err != nil || !strings.Contains(st.Verdict, words) {
			t.Errorf("%q isn't in %q, %v", words, st.Verdict, err)
		}
		return st
	}
	if st := look("no such directory"); st.Fits || st.Marker != nil || st.Database != nil {
		t.Errorf("%+v", st)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	look("isn't bound")
	bind(t, path, pool, Config{at: func(step string) {
		switch step {
		case "create marked":
			look("not started yet")
		case "committed":
			if st := look("interrupted or is under way"); !st.Marker.Unconfirmed || st.Row.Generation != 1 {
				t.Errorf("%+v", st)
			}
		}
	}})
	before := untouched(t, path, pool)
	st := look("bound")
	if !st.Fits || st.Marker.Generation != 1 || st.Row.Generation != 1 || st.Database.Setup != "ready" || len(st.Holders) != 1 || st.Holders[0].PID != os.Getpid() || st.Holders[0].Exclusive {
		t.Errorf("%+v", st)
	}
	if untouched(t, path, pool) != before {
		t.Error("changed")
	}
	exec(t, pool, "update roots set generation = 2")
	if st := look("seems to be a copy"); st.Fits || st.Row.Generation != 2 {
		t.Errorf("%+v", st)
	}
	text, err := json.Marshal(look(""))
	if err != nil || !strings.Contains(string(text), `"unconfirmed":false`) {
		t.Errorf("%s, %v", text, err)
	}
	exec(t, pool, "delete from roots")
	if st := look("unknown to the database"); st.Row != nil {
		t.Errorf("%+v", st)
	}
	if err := os.WriteFile(markerFile(path), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("can't be read as the marker")
}

func TestInspect_WithoutADatabase(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{})
	exec(t, pool, "drop table roots cascade")
	st, err := Inspect(t.Context(), path, pool, Config{})
	if err == nil || st.Marker == nil || st.Marker.RootID != r.ID() || st.Fits || st.Database != nil {
		t.Errorf("%+v, %v", st, err)
	}
}
