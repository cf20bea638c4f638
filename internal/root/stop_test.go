package root

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/testdb"
)

// keySteps are those at which a starter holds the start key.
var keySteps = []string{"key taken", "compared", "staged", "intended", "written"}

func TestStop_AStarterThatHoldsTheKeyMakesOthersBusyAndCanBeKilled(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	for _, step := range keySteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			path := made(t, pool)
			p := starter{Op: "join", Step: step, Signal: "stop", Idle: time.Hour}.startStopped(t, path, pool)
			for name, open := range starts() {
				if _, err := open(t.Context(), path, pool, Config{Wait: time.Millisecond}); !errors.Is(err, ErrBusy) || Reason(err) != "start_busy" {
					t.Errorf("%s: %v", name, err)
				}
			}
			_, err := Accept(t.Context(), path, pool, Config{})
			if who := fmt.Sprintf("with pid %d", p.cmd.Process.Pid); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), who) {
				t.Errorf("accepted beside it: %v", err)
			}
			p.signal(unix.SIGKILL)
			p.end()
			if r := mustJoin(t, path, pool, Config{Wait: time.Minute}); r.Generation() != 2 {
				t.Errorf("generation %d", r.Generation())
			}
			fits(t, path, pool, 2)
		})
	}
}

// The database takes the key from a starter that is stopped. When it goes on, whatever the next one is just at, each of its
// late writes is refused or harmless, and the root is as the others have left it.
func TestStop_AStoppedStarterLosesTheKeyAndItsLateWritesAreRefused(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	for _, step := range append([]string{"locked", "fenced"}, keySteps...) {
		for _, when := range []string{"key taken", "intended", "committed", "confirmed"} {
			t.Run(step+" until "+when, func(t *testing.T) {
				t.Parallel()
				path := made(t, pool)
				p := starter{Op: "join", Step: step, Signal: "stop", Idle: 200 * time.Millisecond, Wait: time.Nanosecond}.startStopped(t, path, pool)
				var late outcome
				r := mustJoin(t, path, pool, Config{Wait: time.Minute, at: func(at string) {
					if at == when && late == (outcome{}) {
						p.signal(unix.SIGCONT)
						late = p.one()
					}
				}})
				if p.end() {
					t.Error("killed")
				}
				want := int64(2)
				if late.Error == "" { // it began anew, as anyone does
					want = 3
				}
				if r.Generation() != 2 || late.Refused || late.Error == "" && late.Generation != want {
					t.Errorf("generation %d, the late one %+v", r.Generation(), late)
				}
				if p := state(t, path, pool); p.row.Generation != want {
					t.Errorf("%+v", p)
				}
				mustJoin(t, path, pool, Config{})
				fits(t, path, pool, want+1)
			})
		}
	}
}

// Past its commit the generation is its own, however late it goes on; others have confirmed it meanwhile.
func TestStop_AStarterThatIsStoppedAfterItsCommitHasStarted(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	for _, step := range []string{"committed", "confirmed"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			path := made(t, pool)
			p := starter{Op: "join", Step: step, Signal: "stop"}.startStopped(t, path, pool)
			mustJoin(t, path, pool, Config{})
			fits(t, path, pool, 3)
			p.signal(unix.SIGCONT)
			if o := p.one(); o.Error != "" || o.Generation != 2 {
				t.Errorf("%+v", o)
			}
			if p.end() {
				t.Error("killed")
			}
			fits(t, path, pool, 3)
			mustJoin(t, path, pool, Config{})
			fits(t, path, pool, 4)
		})
	}
}

// A creator has the root for itself, which nothing takes from it but its end.
func TestStop_AStoppedCreatorKeepsOthersOutUntilItEnds(t *testing.T) {
	t.Parallel()
	for step, reason := range map[string]string{"create locked": "root_unbound", "create begun": "root_unbound", "create marked": "setup_pending"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			p := starter{Op: "bind", Step: step, Signal: "stop"}.startStopped(t, path, pool)
			_, err := Bind(t.Context(), path, pool, Config{Wait: time.Millisecond})
			if who := fmt.Sprintf("with pid %d", p.cmd.Process.Pid); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), who) {
				t.Error(err)
			}
			if _, err := Join(t.Context(), path, pool, Config{Wait: time.Millisecond}); Reason(err) != reason {
				t.Error(err)
			}
			p.signal(unix.SIGKILL)
			p.end()
			bind(t, path, pool, Config{})
			fits(t, path, pool, 1)
		})
	}
}
