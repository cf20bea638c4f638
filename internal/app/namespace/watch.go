// Package namespace tells whether the processes of another pid namespace of this boot, mostly a container that shares the
// data root, are gone. They can't be seen from here.
package namespace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/process"
)

// aloneShare is by how much less a silence does when nobody else works in the data root.
const aloneShare = 4

// Config is what a Watch needs.
type Config struct {
	Pool *pgxpool.Pool
	// Others says whether any other process works in the data root, of whatever namespace.
	Others func() bool
	// Silence is for how long no worker of a namespace may beat before it counts as gone.
	Silence time.Duration

	now func() int64
}

// Watch remembers since when it has heard nothing of which namespace.
type Watch struct {
	cfg    Config
	mu     sync.Mutex
	silent map[key]silence
}

type key struct{ boot, namespace string }

type silence struct {
	beat  time.Time // the last one there was
	since int64     // when that was seen first, by CLOCK_BOOTTIME
}

// New makes a Watch that has heard nothing yet.
func New(cfg Config) *Watch {
	if cfg.now == nil {
		cfg.now = process.BootClock
	}
	return &Watch{cfg: cfg, silent: map[key]silence{}}
}

// Gone implements agent.Config.NamespaceGone. Only silence tells: the workers of the other namespace must not have beaten
// for long enough, and the database must have been there to be beaten to. When nobody else works in the data root, a
// shorter silence does: whatever starts an orch again over there had its time. A failed look begins anew.
func (w *Watch) Gone(ctx context.Context, of process.Identity) (bool, error) {
	enough := w.cfg.Silence
	if !w.cfg.Others() {
		enough /= aloneShare
	}
	k := key{of.BootID, of.PIDNamespace}
	var beat time.Time
	err := w.cfg.Pool.QueryRow(ctx, `select coalesce(max(heartbeat_at), 'epoch')
		from workers where boot_id = $1 and pid_namespace = $2 and stopped_at is null`, k.boot, k.namespace).Scan(&beat)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		delete(w.silent, k)
		return false, fmt.Errorf("look for workers of another pid namespace: %w", err)
	}
	now := w.cfg.now()
	before, known := w.silent[k]
	if !known || !before.beat.Equal(beat) {
		w.silent[k] = silence{beat, now}
		return false, nil
	}
	return now-before.since >= int64(enough), nil
}
