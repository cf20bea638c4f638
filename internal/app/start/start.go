// Package start brings a process to the point where it may work: the database answers, its schema is this program's, and
// the data root belongs to it. What goes away by itself is waited for, at the pace of the poll, with one line in the log
// for each change of the reason. What doesn't go away is returned.
//
// A process that joins (`orch worker`) creates and writes nothing before it has found its data root bound by
// `orch serve`; one that doesn't join makes root and schema itself. Both wait in this loop, and end like this:
// shared root.lock, schema check, pairing, one bump of the generation. So nothing is bumped while the schema isn't right.
package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/app/database"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/process"
	"orch/internal/process/contact"
	"orch/internal/root"
)

// Config says what is to be opened.
type Config struct {
	Config   *config.Config
	MaxConns int32
	Logger   *slog.Logger
	// Join leaves it to others to make the data root and its database.
	Join bool
	// FailUnready returns what would be waited for.
	FailUnready bool
}

// Open waits for database, schema and data root and returns them. It returns the cause of ctx when that ends the waiting.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, *root.Root, error) {
	for waiting := ""; ; {
		pool, data, err := try(ctx, cfg)
		if err == nil {
			return pool, data, nil
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		reason := reasonOf(err)
		if reason == "" || cfg.FailUnready {
			return nil, nil, db.Public(err)
		}
		if reason != waiting {
			waiting = reason
			cfg.Logger.WarnContext(ctx, "worker_waiting", slog.String("reason", reason), slog.String("remedy", remedies(cfg)[reason]))
		}
		timer := time.NewTimer(cfg.Config.Worker.Poll.Duration())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// try is one attempt. What it has opened is closed again when it fails.
func try(ctx context.Context, cfg Config) (*pgxpool.Pool, *root.Root, error) {
	if cfg.Join { // before the database is looked for, since the private one is the root's
		if err := root.Bound(cfg.Config.Data.Root); err != nil {
			return nil, nil, err
		}
	}
	conn, err := database.ConnConfig(cfg.Config)
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.Open(ctx, db.Config{Conn: conn, MaxConns: cfg.MaxConns, Logger: cfg.Logger})
	if err != nil {
		return nil, nil, err
	}
	data, err := bind(ctx, cfg, pool)
	if err != nil {
		if reasonOf(err) != "" {
			sight(ctx, cfg, pool)
		}
		pool.Close()
		return nil, nil, err
	}
	return pool, data, nil
}

// sight lets the shims of a root that is waited on know that somebody will look after their runs, and other hosts that this
// one is alive. Where that can't be done they count on.
func sight(ctx context.Context, cfg Config, pool *pgxpool.Pool) {
	sent := process.BootClock()
	if root.SightWaiting(ctx, cfg.Config.Data.Root, pool) == nil {
		_ = contact.Write(root.RunsDirOf(cfg.Config.Data.Root), sent)
	}
}

// bind checks the schema under the root's lock, and then binds or joins the root.
func bind(ctx context.Context, cfg Config, pool *pgxpool.Pool) (*root.Root, error) {
	self, err := process.Self()
	if err != nil {
		return nil, err
	}
	how := root.Config{
		Testing: bool(cfg.Config.Data.Testing), Host: self.Host,
		Verify: func(ctx context.Context) error {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return fmt.Errorf("connect to the database: %w", err)
			}
			defer conn.Release()
			return database.EnsureSchema(ctx, conn.Conn(), bool(cfg.Config.Database.AutoMigrate) && !cfg.Join, database.MigrateConfig{
				LeaseTTL: cfg.Config.Worker.LeaseTTL.Duration(), Logger: cfg.Logger,
			})
		},
	}
	if !cfg.Join {
		return root.Bind(ctx, cfg.Config.Data.Root, pool, how)
	}
	how.Wait = min(cfg.Config.Worker.Poll.Duration(), maxJoinWait) // the poll tries again
	return root.Join(ctx, cfg.Config.Data.Root, pool, how)
}

// maxJoinWait is how long a process that joins waits for another start on the root, without saying so.
const maxJoinWait = 5 * time.Second

// Reasons to wait, beside those of package root.
const (
	reasonUnreachable = "database_unreachable"
	reasonNotMigrated = "not_migrated"
	reasonPending     = "pending_migration"
	reasonMigrating   = "newer_migration_running"
)

// reasonOf names what goes away by waiting; empty: nothing does.
func reasonOf(err error) string {
	var pending *db.PendingError
	switch {
	case errors.Is(err, db.ErrNotMigrated):
		return reasonNotMigrated
	case errors.As(err, &pending):
		return reasonPending
	case errors.Is(err, database.ErrMigrating):
		return reasonMigrating
	case db.Unreachable(err), errors.Is(err, pgembed.ErrNotRunning): // the private one may be on its way back
		return reasonUnreachable
	default:
		return root.Reason(err)
	}
}
