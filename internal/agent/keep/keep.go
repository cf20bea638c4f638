// Package keep bounds what finished runs leave on the disk: their directories go by age, and the oldest by size. The rows
// stay.
//
// A run whose result nobody has used yet keeps its directory, and so does one whose shim lives or whose log is being read:
// process.Run.Remove takes the run's lock first. A directory loses its name before its content, so a sweep that is killed
// leaves none that looks like a run that has died.
package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/disk"
	"orch/internal/process"
)

// batch is how many runs are looked at together.
const batch = 200

// Config says what is kept.
type Config struct {
	Pool *pgxpool.Pool
	Root uuid.UUID
	Dir  string // of the run directories of that root
	// Age is for how long after its end a run is kept, Size what all of them may take, in bytes; zero is without bound.
	Age    time.Duration
	Size   int64
	Logger *slog.Logger
}

// Keeper sweeps one data root.
type Keeper struct{ cfg Config }

// New makes one.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg} }

// Sweep removes what is too old or too much, and returns how many runs that were. One that can't be removed keeps nobody
// else's.
func (k *Keeper) Sweep(ctx context.Context) (int, error) {
	failed := []error{process.Tidy(k.cfg.Dir)}
	old, err := k.byAge(ctx)
	failed = append(failed, err)
	much, err := k.bySize(ctx)
	failed = append(failed, err)
	if n := old + much; n > 0 {
		k.cfg.Logger.InfoContext(ctx, "output of finished runs removed", slog.Int("too_old", old), slog.Int("too_much", much))
	}
	return old + much, errors.Join(failed...)
}

func (k *Keeper) byAge(ctx context.Context) (removed int, err error) {
	if k.cfg.Age <= 0 {
		return 0, nil
	}
	var failed []error
	err = k.oldest(ctx, `finished_at < clock_timestamp() - make_interval(secs => @age)`, func(id uuid.UUID) (bool, error) {
		gone, err := k.remove(ctx, id)
		if gone {
			removed++
		}
		failed = append(failed, err)
		return true, nil
	})
	return removed, errors.Join(append(failed, err)...)
}

func (k *Keeper) bySize(ctx context.Context) (removed int, err error) {
	if k.cfg.Size <= 0 {
		return 0, nil
	}
	left, err := disk.Usage(ctx, k.cfg.Dir)
	if err != nil || left <= k.cfg.Size {
		return 0, err
	}
	var failed []error
	err = k.oldest(ctx, `true`, func(id uuid.UUID) (bool, error) {
		size, err := disk.Usage(ctx, k.dir(id))
		if err != nil {
			return false, err
		}
		gone, err := k.remove(ctx, id)
		if gone {
			removed++
			left -= size
		}
		failed = append(failed, err)
		return left > k.cfg.Size, nil
	})
	return removed, errors.Join(append(failed, err)...)
}

func (k *Keeper) dir(id uuid.UUID) string { return filepath.Join(k.cfg.Dir, id.String()) }

// oldest calls fn with the used-up runs that have their directories, the oldest first, until it says no.
func (k *Keeper) oldest(ctx context.Context, condition string, fn func(id uuid.UUID) (bool, error)) error {
	type place struct {
		At time.Time
		ID uuid.UUID
	}
	for last := (place{}); ; {
		rows, err := k.cfg.Pool.Query(ctx, `select finished_at, id from runs
			where root_id = @root and state = 'finished' and consumed_at is not null and removed_at is null
			  and (finished_at, id) > (@at, @id) and `+condition+` order by finished_at, id limit @batch`,
			pgx.NamedArgs{"root": k.cfg.Root, "at": last.At, "id": last.ID, "age": k.cfg.Age.Seconds(), "batch": batch})
		if err != nil {
			return fmt.Errorf("list finished runs: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
		if err != nil {
			return fmt.Errorf("list finished runs: %w", err)
		}
		for _, run := range found {
			if more, err := fn(run.ID); err != nil || !more {
				return err
			}
		}
		if len(found) < batch {
			return nil
		}
		last = found[len(found)-1]
	}
}

// remove is false when the directory has to stay for now.
func (k *Keeper) remove(ctx context.Context, id uuid.UUID) (bool, error) {
	run, err := process.OpenRun(k.dir(id))
	if err == nil {
		err = run.Remove(ctx)
	}
	if errors.Is(err, process.ErrNoRun) {
		err = process.Discard(k.dir(id)) // its program may have left something there all the same
	}
	switch {
	case errors.Is(err, process.ErrHeld), errors.Is(err, process.ErrUnfinished):
		return false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, fmt.Errorf("remove run %s: %w", id, err)
	}
	if _, err := k.cfg.Pool.Exec(ctx, `update runs set removed_at = clock_timestamp() where id = $1 and removed_at is null`, id); err != nil {
		return false, fmt.Errorf("note that run %s is removed: %w", id, err)
	}
	return true, nil
}
