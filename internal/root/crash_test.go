package root

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/root/layout"
	"orch/internal/testdb"
)

// die starts a process that is killed at that step.
func die(t *testing.T, op, step, path string, pool *pgxpool.Pool) {
	t.Helper()
	p := starter{Op: op, Step: step, Signal: "kill"}.start(t, path, pool)
	if o, ok := p.next(); ok {
		t.Errorf("got past %q: %+v", step, o)
	}
	if !p.end() {
		t.Errorf("not killed at %q", step)
	}
}

func TestCrash_OfACreation(t *testing.T) {
	t.Parallel()
	for _, step := range slices.Concat(createSteps, startSteps) {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			die(t, "bind", step, path, pool)
			want := int64(1)
			if spent(step) {
				want = 2
			}
			if r := bind(t, path, pool, Config{}); r.Generation() != want {
				t.Errorf("generation %d instead of %d", r.Generation(), want)
			}
			fits(t, path, pool, want)
			mustJoin(t, path, pool, Config{})
			fits(t, path, pool, want+1)
		})
	}
}

// Whoever comes next repairs what is left, server or worker, and starts with one bump of its own.
func TestCrash_OfAStartIsRepairedByWhoeverComesNext(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	for _, step := range startSteps {
		for op, next := range map[string]string{"bind": "join", "join": "bind"} {
			t.Run(op+" "+step, func(t *testing.T) {
				t.Parallel()
				path := made(t, pool)
				die(t, op, step, path, pool)
				want := int64(2)
				if spent(step) { // the dead one had its generation, 2
					want = 3
				}
				r, err := starts()[next](t.Context(), path, pool, Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if r.Generation() != want {
					t.Errorf("generation %d instead of %d", r.Generation(), want)
				}
				fits(t, path, pool, want)
			})
		}
	}
}

func TestCrash_OfTheOneThatRepairs(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	for _, first := range []string{"intended", "committed"} {
		for _, second := range startSteps {
			t.Run(first+", then "+second, func(t *testing.T) {
				t.Parallel()
				path := made(t, pool)
				die(t, "bind", first, path, pool)
				die(t, "join", second, path, pool)
				want := int64(2)
				for _, step := range []string{first, second} {
					if spent(step) {
						want++
					}
				}
				mustJoin(t, path, pool, Config{})
				fits(t, path, pool, want)
			})
		}
	}
}

// acceptable are ways in which root and database don't fit, that a person accepts.
func acceptable() map[string]func(*testing.T, string, *pgxpool.Pool) {
	return map[string]func(*testing.T, string, *pgxpool.Pool){
		"behind": func(t *testing.T, path string, pool *pgxpool.Pool) {
			t.Helper()
			exec(t, pool, "update roots set generation = 7 where path = $1", path)
		},
		"ahead": func(t *testing.T, path string, _ *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation = 7 })
		},
		"diverged": func(t *testing.T, path string, pool *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation = 7 })
			exec(t, pool, "update roots set generation = 7, nonce = gen_random_uuid() where path = $1", path)
		},
		"unknown": func(t *testing.T, path string, pool *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation = 7 })
			exec(t, pool, "delete from roots where path = $1", path)
		},
		"foreign": func(t *testing.T, path string, pool *pgxpool.Pool) {
			t.Helper()
			mark(t, path, func(m *marker) { m.Generation = 7 })
			exec(t, pool, "delete from roots where path = $1", path)
			exec(t, pool, "update instance set id = gen_random_uuid(), setup = 'unconfigured'")
		},
	}
}

// An acceptance that dies is refused as it was before, or done. Called again, it comes to the same end.
func TestCrash_OfAnAcceptance(t *testing.T) {
	t.Parallel()
	shared := testdb.New(t)
	for name, spoil := range acceptable() {
		steps := []string{"intended", "committed"}
		if name == "behind" || name == "foreign" {
			steps = append([]string{"accept locked"}, startSteps[1:]...)
		}
		for _, step := range steps {
			t.Run(name+" "+step, func(t *testing.T) {
				t.Parallel()
				pool := shared
				if name == "foreign" {
					pool = testdb.New(t)
				}
				path := made(t, pool)
				spoil(t, path, pool)
				die(t, "accept", step, path, pool)
				r, err := Bind(t.Context(), path, pool, Config{})
				if !spent(step) {
					if !isRefusal(err) {
						t.Fatalf("started before the row was written: %v", err)
					}
					if a, err := Accept(t.Context(), path, pool, Config{Rebind: true}); err != nil || !a.Changed || a.Generation != 8 {
						t.Fatalf("%+v, %v", a, err)
					}
					if r, err = Bind(t.Context(), path, pool, Config{}); err != nil {
						t.Fatal(err)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				fits(t, path, pool, 9)
			})
		}
	}
}

// Processes that race for one root and die at any step: no start is refused, each has a generation of its own, none is lost.
func TestCrash_RacingProcesses(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	exec(t, pool, "create table bumps (generation bigint primary key, nonce uuid not null)")
	exec(t, pool, `create function note() returns trigger language plpgsql as $$
		begin insert into bumps values (new.generation, new.nonce); return null; end $$`)
	exec(t, pool, "create trigger note after insert or update on roots for each row execute function note()")
	bind(t, path, pool, Config{})
	var (
		group sync.WaitGroup
		lock  sync.Mutex
		taken = map[int64]bool{1: true}
		kills int
	)
	seed := rand.Uint64()
	for i := range uint64(3) {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, i))
			for range 12 {
				op := []string{"bind", "join"}[rnd.IntN(2)]
				p := starter{Op: op, Signal: "kill", Skip: rnd.IntN(5 * len(startSteps)), Starts: 4, Wait: time.Minute}.start(t, path, pool)
				for o, ok := p.next(); ok; o, ok = p.next() {
					lock.Lock()
					if o.Error != "" || taken[o.Generation] {
						t.Errorf("seed %d: %+v", seed, o)
					}
					taken[o.Generation] = true
					lock.Unlock()
				}
				if p.end() {
					lock.Lock()
					kills++
					lock.Unlock()
				}
			}
		})
	}
	group.Wait()
	var count, highest int64
	scan(t, pool, "select count(*), max(generation) from bumps", &count, &highest)
	if count != highest || int64(len(taken)) > count || kills == 0 {
		t.Errorf("seed %d: %d bumps up to generation %d, %d starts, %d kills", seed, count, highest, len(taken), kills)
	}
	t.Logf("%d bumps, %d starts, %d kills", count, len(taken), kills)
	mustJoin(t, path, pool, Config{})
	fits(t, path, pool, highest+1)
}

func TestStart_FullDisk(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"bind", "join"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			if err := bind(t, path, pool, Config{}).Close(); err != nil {
				t.Fatal(err)
			}
			p := starter{Op: op, Full: true}.start(t, path, pool)
			if o := p.one(); o.Reason != "marker_write_failed" || !strings.Contains(o.Error, "free space") {
				t.Errorf("%+v", o)
			}
			if o := p.one(); o.Error != "" || o.Generation != 2 {
				t.Errorf("when there is space again: %+v", o)
			}
			if p.end() {
				t.Error("killed")
			}
			fits(t, path, pool, 2)
		})
	}
	t.Run("creation", func(t *testing.T) {
		t.Parallel()
		pool, path := testdb.New(t), dir(t)
		p := starter{Op: "bind", Full: true}.start(t, path, pool)
		if o := p.one(); o.Reason != "marker_write_failed" {
			t.Errorf("%+v", o)
		}
		if o := p.one(); o.Error != "" || o.Generation != 1 {
			t.Errorf("when there is space again: %+v", o)
		}
		if p.end() {
			t.Error("killed")
		}
		fits(t, path, pool, 1)
	})
}

func TestBind_AMarkerThatIsWrittenByHalfIsNone(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	if err := layout.Prepare(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(markerFile(path)+".tmp", []byte(`{"inst`), 0o600); err != nil {
		t.Fatal(err)
	}
	bind(t, path, pool, Config{})
	fits(t, path, pool, 1)
}

func TestBind_CreationAfterALostDatabase(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	cancelled, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := Bind(cancelled, path, pool, Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	bind(t, path, pool, Config{})
	fits(t, path, pool, 1)
}
