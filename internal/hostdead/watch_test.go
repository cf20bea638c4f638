package hostdead_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"orch/internal/hostdead"
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	root  = uuid.New()
)

const (
	after = time.Hour
	every = time.Minute
)

func watch() *hostdead.Watch {
	return hostdead.New(hostdead.Config{After: after, Margin: time.Minute, Every: every})
}

// passes looks at a root that was seen last when the passes began, once every interval until a time, and returns whether it
// was ever found dead.
func passes(w *hostdead.Watch, from, to, grace time.Duration) bool {
	for now := from; now <= to; now += every {
		if slices.Contains(w.Pass(now, []hostdead.Sighting{{Root: root, SeenAt: start, Age: now, Grace: grace}}), root) {
			return true
		}
	}
	return false
}

func TestASilentRootIsDeadAfterThatLong(t *testing.T) {
	t.Parallel()
	w := watch()
	if passes(w, 0, after-every, 0) {
		t.Error("dead too early")
	}
	if !passes(w, after, after, 0) {
		t.Error("never dead")
	}
}

func TestARunsOwnGraceIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := watch()
	if passes(w, 0, 2*after, 2*after) {
		t.Error("dead before its shims have ended their runs")
	}
	if !passes(w, 2*after+every, 2*after+every, 2*after) {
		t.Error("never dead")
	}
}

func TestASignOfLifeBeginsAnew(t *testing.T) {
	t.Parallel()
	w := watch()
	passes(w, 0, after-every, 0)
	seen := []hostdead.Sighting{{Root: root, SeenAt: start.Add(after), Age: 0}}
	if len(w.Pass(after, seen)) > 0 {
		t.Error("dead although it was seen")
	}
	seen[0].Age = 2 * after // the database's clock jumps
	if len(w.Pass(after+every, seen)) > 0 {
		t.Error("dead by the database's clock alone")
	}
}

func TestWhileTheDatabaseWasAwayNobodyDied(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(w *hostdead.Watch) time.Duration{
		"a pass failed":          func(w *hostdead.Watch) time.Duration { w.Failed(); return every },
		"no pass for some time":  func(*hostdead.Watch) time.Duration { return 4 * every },
		"the process is another": func(w *hostdead.Watch) time.Duration { *w = *watch(); return every },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch()
			passes(w, 0, after-every, 0)
			again := after - every + interrupt(w)
			if passes(w, again, again+after-every, 0) {
				t.Error("dead before it could have been seen for that long")
			}
			if !passes(w, again+after, again+after, 0) {
				t.Error("never dead")
			}
		})
	}
}

// Whatever happens, no root is dead that gave a sign of life less than the time ago, by either clock.
func TestNoRootIsDeadThatWasSeenLately(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := watch()
		var now, seenAt time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "passes") {
			now += rapid.SampledFrom([]time.Duration{every, every, every, 2 * every, 10 * every}).Draw(t, "gap")
			switch rapid.IntRange(0, 20).Draw(t, "event") {
			case 0:
				seenAt = now
			case 1:
				w.Failed()
				continue
			}
			dead := w.Pass(now, []hostdead.Sighting{{Root: root, SeenAt: start.Add(seenAt), Age: now - seenAt}})
			if len(dead) > 0 && now-seenAt < after {
				t.Fatalf("dead at %s, seen at %s", now, seenAt)
			}
		}
	})
}
