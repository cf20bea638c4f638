package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/process"
)

// ErrMigrating says that a newer program is about to migrate the database.
var ErrMigrating = errors.New("a newer orch is about to migrate the database: start that version, or wait until it has given up")

const (
	lookAgain      = 500 * time.Millisecond // while workers of an older program live
	applyWithin    = 10 * time.Minute       // how long an announcement holds once the migrations are being applied
	minAnnounced   = 10 * time.Second       // of an announcement that is renewed, whatever the lease's TTL
	withdrawWithin = 5 * time.Second
)

// MigrateConfig says how Migrate waits.
type MigrateConfig struct {
	LeaseTTL time.Duration // a worker whose last beat is older isn't waited for
	Logger   *slog.Logger
}

// Migrate brings the schema up to date once no worker of an older program is left, and answers what it applied. It waits
// for as long as ctx allows, and says for whom.
func Migrate(ctx context.Context, conn *pgx.Conn, m *db.Migrator, cfg MigrateConfig) ([]db.Migration, error) {
	status, err := m.Status(ctx, conn)
	if err != nil {
		return nil, err
	}
	if len(status.Drifted) > 0 || len(status.Ahead) > 0 {
		return nil, status.Err()
	}
	if len(status.Pending) == 0 {
		return nil, nil
	}
	d := drain{conn: conn, cfg: cfg, target: status.Pending[len(status.Pending)-1].Version}
	defer d.withdraw(ctx)
	if err := d.wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for workers of an older orch: %w", err)
	}
	return m.Apply(ctx, conn)
}

// drain is the wait of one migration for workers that don't know its schema.
type drain struct {
	conn   *pgx.Conn
	cfg    MigrateConfig
	target int
	told   string // for whom it was last said to wait

	announced bool // there is something to withdraw, perhaps
}

func (d *drain) wait(ctx context.Context) error {
	for {
		if err := d.announce(ctx, max(d.cfg.LeaseTTL, minAnnounced)); err != nil {
			return err
		}
		left, err := d.living(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return d.announce(ctx, applyWithin)
		}
		if err := d.tell(ctx, left); err != nil {
			return err
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// older is a worker of a program that doesn't know the schema that is coming.
type older struct {
	Host         string `db:"host"`
	BootID       string `db:"boot_id"`
	PIDNamespace string `db:"pid_namespace"`
	PID          int    `db:"pid"`
	PIDStartedAt int64  `db:"pid_started_at"`
	Version      string `db:"version"`
}

// living lists them. It reads the newest migration that a worker knows by name, since the column comes with one of the
// migrations; whoever was registered before knows none of those that look for it. One that was killed is not waited for.
func (d *drain) living(ctx context.Context) ([]older, error) {
	if made, err := d.exists(ctx, "workers", "heartbeat_at"); err != nil || !made {
		return nil, err
	}
	rows, err := d.conn.Query(ctx, `
select host, boot_id, pid_namespace, pid, pid_started_at, version from workers w
where stopped_at is null and heartbeat_at > clock_timestamp() - make_interval(secs => $1)
  and coalesce((to_jsonb(w) ->> 'schema')::int, 0) < $2
order by host, pid`, d.cfg.LeaseTTL.Seconds(), d.target)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	workers, err := pgx.CollectRows(rows, pgx.RowToStructByName[older])
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return slices.DeleteFunc(workers, func(w older) bool {
		return process.Probe(process.Identity{
			Host: w.Host, BootID: w.BootID, PIDNamespace: w.PIDNamespace, PID: w.PID, StartedAt: w.PIDStartedAt,
		}) == process.Dead
	}), nil
}

// tell says once for whom it waits, and again when that changes.
func (d *drain) tell(ctx context.Context, left []older) error {
	names := make([]string, len(left))
	for i, w := range left {
		names[i] = fmt.Sprintf("%s pid %d (orch %s)", w.Host, w.PID, w.Version)
	}
	now := strings.Join(names, ", ")
	if now == d.told {
		return nil
	}
	d.told = now
	heard, err := d.exists(ctx, "instance", "migrating_until")
	if err != nil {
		return err
	}
	if !heard { // the first schema has no room for announcements
		d.cfg.Logger.WarnContext(ctx, "the migration waits for workers of an older orch: stop them, they don't know of it", slog.Any("workers", names))
		return nil
	}
	d.cfg.Logger.WarnContext(ctx, "the migration waits for workers of an older orch: they end when their jobs have, or stop them",
		slog.Any("workers", names))
	return nil
}

// announce has workers of older programs drain, for as long as it is renewed. A greater announcement stays.
func (d *drain) announce(ctx context.Context, within time.Duration) error {
	if made, err := d.exists(ctx, "instance", "migrating_until"); err != nil || !made {
		return err
	}
	d.announced = true // also when this fails: the statement may have been carried out
	_, err := d.conn.Exec(ctx, `
update instance set migrating_to = greatest($1, case when migrating_until > clock_timestamp() then migrating_to end),
	migrating_until = clock_timestamp() + make_interval(secs => $2)`, d.target, within.Seconds())
	if err != nil {
		return fmt.Errorf("announce the migration: %w", err)
	}
	return nil
}

// withdraw ends the announcement, when it was in vain and when it isn't needed any more.
func (d *drain) withdraw(ctx context.Context) {
	if !d.announced {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
	defer cancel()
	_, err := d.conn.Exec(ctx, `update instance set migrating_to = null, migrating_until = null where migrating_to <= $1`, d.target)
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "the announcement of the migration wasn't withdrawn, it runs out", slog.String("code", db.Code(err)))
	}
}

func (d *drain) exists(ctx context.Context, table, column string) (bool, error) {
	return exists(ctx, d.conn, table, column)
}

// exists says whether the schema has come as far as that column.
func exists(ctx context.Context, conn *pgx.Conn, table, column string) (there bool, err error) {
	err = conn.QueryRow(ctx, `select exists (
		select from pg_attribute where attrelid = to_regclass($1) and attname = $2 and not attisdropped)`, table, column).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look for column %s.%s: %w", table, column, err)
	}
	return there, nil
}

// refuseAnnounced keeps a program from starting whose schema is about to be replaced: its worker would drain at once.
func refuseAnnounced(ctx context.Context, conn *pgx.Conn, newest int) error {
	if made, err := exists(ctx, conn, "instance", "migrating_until"); err != nil || !made {
		return err
	}
	var announced bool
	err := conn.QueryRow(ctx, `select exists (
		select from instance where migrating_to > $1 and migrating_until > clock_timestamp())`, newest).Scan(&announced)
	if err != nil {
		return fmt.Errorf("look for an announced migration: %w", err)
	}
	if announced {
		return ErrMigrating
	}
	return nil
}
