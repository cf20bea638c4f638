package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/testdb"
)

// The steps of a start, in their order.
var (
	createSteps = []string{"create locked", "create begun", "create marked"}
	startSteps  = []string{"locked", "fenced", "key taken", "compared", "staged", "intended", "written", "committed", "confirmed"}
)

// spent says whether a start that ended at this step has used up a generation.
func spent(step string) bool {
	return slices.Index(startSteps, step) >= slices.Index(startSteps, "committed")
}

func TestStart_StepsAreInTheirOrder(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	var steps []string
	cfg := Config{at: func(step string) { steps = append(steps, step) }}
	bind(t, path, pool, cfg)
	mustJoin(t, path, pool, cfg)
	if want := slices.Concat(createSteps, startSteps, startSteps); !slices.Equal(steps, want) {
		t.Errorf("%q", steps)
	}
}

func TestStart_TwoAtOnceComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	generations := make(chan int64, 2)
	var group sync.WaitGroup
	for _, open := range starts() {
		group.Go(func() {
			r, err := open(t.Context(), path, pool, Config{Wait: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			generations <- r.Generation()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	close(generations)
	got := slices.Sorted(func(yield func(int64) bool) {
		for g := range generations {
			if !yield(g) {
				return
			}
		}
	})
	if !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("generations %d", got)
	}
	fits(t, path, pool, 3)
}

func TestStart_ABusyKeyIsRetryable(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	tx := holdKey(t, pool)
	for name, open := range starts() {
		if _, err := open(t.Context(), path, pool, Config{Wait: time.Millisecond}); !errors.Is(err, ErrBusy) || Reason(err) != "start_busy" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	fits(t, path, pool, 1)
	mustJoin(t, path, pool, Config{})
	fits(t, path, pool, 2)
}

// Workers and runs refer to the root's row all the time.
func TestStart_RowsThatReferToTheRootDoNotHoldTheKey(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	hold(t, pool, "select from roots for key share")
	mustJoin(t, path, pool, Config{Wait: time.Millisecond})
}

func TestStart_ARootOfBeforeThereWereBumps(t *testing.T) {
	t.Parallel()
	for name, open := range starts() {
		pool, path := testdb.New(t), dir(t)
		bind(t, path, pool, Config{})
		mark(t, path, func(m *marker) { m.Generation, m.Nonce = 0, uuid.Nil })
		exec(t, pool, "update roots set generation = 0, nonce = null")
		r, err := open(t.Context(), path, pool, Config{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fits(t, path, pool, 1)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Wherever the database goes away, the attempt can be made again, and neither side is refused for it.
func TestStart_DatabaseLostAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, step := range startSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			bind(t, path, pool, Config{})
			admin, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			r, err := Join(t.Context(), path, pool, Config{at: func(at string) {
				if at == step {
					// and with it whatever the pool has in store
					exec(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()")
				}
			}})
			want := int64(2)
			if err == nil {
				want = 3
				r.Close()
			}
			// Before it holds the key, the pool may notice and dial anew.
			if early := step == "locked" || step == "fenced"; !early && (err == nil) != spent(step) || isRefusal(err) {
				t.Errorf("lost at %q: %v", step, err)
			}
			if again := eventuallyJoin(t, path, pool); again.Generation() != want {
				t.Errorf("generation %d instead of %d", again.Generation(), want)
			}
			fits(t, path, pool, want)
		})
	}
}

// eventuallyJoin joins as soon as the pool has got over its lost connections.
func eventuallyJoin(t *testing.T, path string, pool *pgxpool.Pool) *Root {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for {
		r, err := Join(ctx, path, pool, Config{})
		if err == nil {
			t.Cleanup(func() { r.Close() })
			return r
		}
		if ctx.Err() != nil || isRefusal(err) {
			t.Fatal(err)
		}
	}
}

func isRefusal(err error) bool {
	_, pairing := errors.AsType[*PairingError](err)
	_, foreign := errors.AsType[*ForeignError](err)
	_, testing := errors.AsType[*TestingError](err)
	_, garbage := errors.AsType[*MarkerError](err)
	_, living := errors.AsType[*LivingError](err)
	return pairing || foreign || testing || garbage || living || errors.Is(err, ErrInUse)
}

// A marker that can't be replaced at the moment: what was to be replaced is still there, or mended by the next start.
func TestStart_AFailedMarkerWriteIsRetryable(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]int64{"staged": 2, "committed": 3} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			bind(t, path, pool, Config{})
			kept := markerFile(path) + ".kept"
			_, err := Join(t.Context(), path, pool, Config{at: func(at string) {
				if at == step { // nothing can be renamed over a directory
					if err := errors.Join(os.Rename(markerFile(path), kept), os.Mkdir(markerFile(path), 0o700)); err != nil {
						t.Error(err)
					}
				}
			}})
			if _, ok := errors.AsType[*WriteError](err); !ok || Reason(err) != "marker_write_failed" {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(markerFile(path)), os.Rename(kept, markerFile(path))); err != nil {
				t.Fatal(err)
			}
			mustJoin(t, path, pool, Config{})
			fits(t, path, pool, want)
		})
	}
}

func TestStart_LeavesWhatOthersPutIntoTheRoot(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	mine := filepath.Join(path, "root.started")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	mustJoin(t, path, pool, Config{})
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
