// Package hosts takes tasks from data roots whose host is dead, so that others do them. What "dead" means, and why nothing
// that lives is taken, is told in package hostdead.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/ledger"
	"orch/internal/hostdead"
	"orch/internal/lifespan"
	"orch/internal/process"
	"orch/internal/task"
)

// taken is how many tasks one pass takes from a root, and how many clean-ups.
const taken = 100

// never is the grace of a root with runs that nothing ends by itself: those of a program without that switch.
const never = 100 * 365 * 24 * time.Hour

// Config is what Hosts needs.
type Config struct {
	Pool  *pgxpool.Pool
	Tasks *task.Store
	// OfferedTx says whether a task's work that is about to land is in its repository. nil = never.
	OfferedTx func(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error)
	Self      uuid.UUID // this process's own root, which is never looked at
	Watch     hostdead.Config
	// Now is the boot clock; nil: the machine's.
	Now    func() time.Duration
	Logger *slog.Logger
}

// Hosts watches the other data roots of a database. It isn't safe for concurrent use.
type Hosts struct {
	cfg   Config
	watch *hostdead.Watch
	told  map[uuid.UUID]bool // roots that were said to be dead
	kept  map[int64]bool     // tasks that were said to stay where they are
}

// New makes one that has seen nothing yet.
func New(cfg Config) *Hosts {
	if cfg.Now == nil {
		cfg.Now = func() time.Duration { return time.Duration(process.BootClock()) }
	}
	return &Hosts{cfg: cfg, watch: hostdead.New(cfg.Watch), told: map[uuid.UUID]bool{}, kept: map[int64]bool{}}
}

// cleanUps are the queued clean-ups of a data root, as the index of queued jobs has them.
const cleanUps = `j.state = 'queued' and j.lane = '` + task.LaneSystem + `' and j.kind = '` + task.KindRetire + `'
	and coalesce(j.pinned_root, '00000000-0000-0000-0000-000000000000')`

// sightingsSQL reads what is known of other roots that have something to do.
const sightingsSQL = `
select r.id, seen.at, extract(epoch from clock_timestamp() - seen.at)::float8 as age,
	coalesce((select max(coalesce(orphan_grace_s, -1)) from runs where root_id = r.id and state <> 'finished' and orphan_grace_s is not null), 0) as grace,
	exists (select from runs where root_id = r.id and state <> 'finished' and orphan_grace_s is null) as endless
from roots r cross join lateral (
	select greatest(r.seen_at, max(heartbeat_at)) as at from workers where root_id = r.id) seen
where r.id <> $1 and (exists (select from tasks where root_id = r.id and state = 'active') or exists (select from jobs j where ` + cleanUps + ` = r.id))`

// Pass looks once, and takes from each dead root what it had to do. It is to be called at the pace of Config.Watch.Every.
func (h *Hosts) Pass(ctx context.Context) error {
	seen, err := h.sightings(ctx)
	if err != nil {
		h.watch.Failed()
		return err
	}
	dead := map[uuid.UUID]bool{}
	var failed []error
	for _, root := range h.watch.Pass(h.cfg.Now(), seen) {
		dead[root] = true
		if !h.told[root] {
			h.cfg.Logger.ErrorContext(ctx, "a data root's host is given up: others do what it had to do", slog.String("root_id", root.String()))
		}
		failed = append(failed, h.take(ctx, root))
	}
	h.told = dead
	return errors.Join(failed...)
}

func (h *Hosts) sightings(ctx context.Context) ([]hostdead.Sighting, error) {
	rows, err := h.cfg.Pool.Query(ctx, sightingsSQL, h.cfg.Self)
	if err != nil {
		return nil, fmt.Errorf("look at other data roots: %w", err)
	}
	seen, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s hostdead.Sighting, err error) {
		var age float64
		var grace int64
		var endless bool
		err = row.Scan(&s.Root, &s.SeenAt, &age, &grace, &endless)
		s.Age, s.Grace = time.Duration(age*float64(time.Second)), time.Duration(grace)*time.Second
		if endless {
			s.Grace = never
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("look at other data roots: %w", err)
	}
	return seen, nil
}

// take takes the tasks of a dead root, one after the other: each may be somebody's again meanwhile.
func (h *Hosts) take(ctx context.Context, root uuid.UUID) error {
	leaving := task.Leaving{
		OfferedTx: h.cfg.OfferedTx,
		GiveUpTx:  func(ctx context.Context, tx pgx.Tx, id int64) error { return ledger.GiveUpTx(ctx, tx, id, root) },
	}
	return errors.Join(
		h.each(ctx, root, `select id from tasks where root_id = $1 and state = 'active' and id > $2 order by id limit $3`, func(id int64) (bool, error) {
			return h.takeTask(ctx, id, root, leaving)
		}),
		h.each(ctx, root, `select j.id from jobs j where `+cleanUps+` = $1 and j.id > $2 order by j.id limit $3`, func(id int64) (bool, error) {
			left, err := h.cfg.Tasks.LeaveCleanUp(ctx, id, root, leaving)
			if left {
				h.cfg.Logger.InfoContext(ctx, "clean-up left to a data root whose host is dead", slog.Int64("job_id", id), slog.String("root_id", root.String()))
			}
			return left, err
		}),
	)
}

// each has fn called with what is found in a root, in the order of the ids and whatever becomes of the others, until it has
// taken enough for one pass: what stays where it is doesn't keep back what comes after it.
func (h *Hosts) each(ctx context.Context, root uuid.UUID, sql string, fn func(id int64) (took bool, err error)) error {
	var failed []error
	for after, left := int64(0), taken; left > 0; {
		page, err := h.page(ctx, root, sql, after)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, id := range page {
			if after = id; left == 0 {
				break
			}
			failed = append(failed, lifespan.Guard(h.cfg.Logger, "work of a dead host", func() error { //nolint:contextcheck // a guard takes no context
				took, err := fn(id)
				if took {
					left--
				}
				return err
			}))
		}
		if len(page) < taken {
			break
		}
	}
	return errors.Join(failed...)
}

// page lists what comes after an id, at most taken of it.
func (h *Hosts) page(ctx context.Context, root uuid.UUID, sql string, after int64) ([]int64, error) {
	rows, err := h.cfg.Pool.Query(ctx, sql, root, after, taken)
	if err != nil {
		return nil, fmt.Errorf("list what a dead data root has: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("list what a dead data root has: %w", err)
	}
	return found, nil
}

// takeTask answers false for a task that stays, or is somebody's again.
func (h *Hosts) takeTask(ctx context.Context, id int64, root uuid.UUID, leaving task.Leaving) (took bool, err error) {
	_, err = h.cfg.Tasks.LeaveRoot(ctx, id, root, leaving)
	switch {
	case errors.Is(err, task.ErrLeft):
		return false, nil
	case errors.Is(err, task.ErrLandingStarted):
		if !h.kept[id] {
			h.kept[id] = true
			h.cfg.Logger.ErrorContext(ctx, "a task stays with its dead host: its change may have landed already, which only that data root knows",
				slog.Int64("task_id", id), slog.String("root_id", root.String()))
		}
		return false, nil
	}
	return err == nil, err
}
