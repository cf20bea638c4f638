// Package database says how to reach the database, runs the private one, and keeps the schema this program's.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/root"
	"orch/migrations"
)

// StopTimeout bounds the end of the private PostgreSQL.
const StopTimeout = 45 * time.Second

// ConnConfig says how to reach the database: the given one, or the private one that somebody runs in the data root.
func ConnConfig(cfg *config.Config) (*pgx.ConnConfig, error) {
	if cfg.Database.Private() {
		return pgembed.Connect(root.PGDir(cfg.Data.Root), pgembed.Database)
	}
	return db.ParseURL(cfg.Database.URL.Reveal())
}

// ListenConfig is the same for the listener, which may need a way around a transaction pooler.
func ListenConfig(cfg *config.Config) (*pgx.ConnConfig, error) {
	if cfg.Database.Private() || cfg.Database.ListenURL.Empty() {
		return ConnConfig(cfg)
	}
	return db.ParseURL(cfg.Database.ListenURL.Reveal())
}

// Postgres is the service that runs the private PostgreSQL. When the server ends unasked the supervisor starts it again.
func Postgres(cfg *config.Config, log *slog.Logger) func(context.Context, func()) error {
	return func(ctx context.Context, ready func()) error {
		server, err := startPostgres(ctx, cfg, log)
		if err != nil {
			return err
		}
		ready()
		select {
		case <-ctx.Done():
		case <-server.Done():
			err = fmt.Errorf("the private PostgreSQL ended by itself: %w", errors.Join(server.Err(), errEnded))
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
		defer cancel()
		return errors.Join(err, server.Stop(stop))
	}
}

var errEnded = errors.New("it is started again")

// startPostgres starts the private server. One that is killed in the middle of its start is started again a few times:
// nothing is wrong with it.
func startPostgres(ctx context.Context, cfg *config.Config, log *slog.Logger) (*pgembed.Server, error) {
	const starts = 5
	for n := 1; ; n++ {
		server, err := pgembed.Start(ctx, pgembed.Config{
			Dir: root.PGDir(cfg.Data.Root), BinDir: cfg.Database.PostgresBin, Logger: log,
		})
		if n == starts || !errors.Is(err, pgembed.ErrKilled) {
			return server, err
		}
		log.WarnContext(ctx, "the private PostgreSQL was killed while it started, starting it again", slog.Int("start", n))
	}
}

// With runs fn on a connection to the database, starting the private PostgreSQL for that time when nobody else
// runs it. It is for commands that work without a server, such as `orch migrate`.
func With(ctx context.Context, cfg *config.Config, log *slog.Logger, fn func(ctx context.Context, conn *pgx.Conn) error) (err error) {
	conn, err := ConnConfig(cfg)
	if errors.Is(err, pgembed.ErrNotRunning) {
		if err := root.Prepare(cfg.Data.Root); err != nil {
			return err
		}
		server, startErr := startPostgres(ctx, cfg, log)
		if startErr != nil {
			return startErr
		}
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
			defer cancel()
			err = errors.Join(err, server.Stop(stop))
		}()
		conn = server.ConnConfig(pgembed.Database)
	} else if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return fmt.Errorf("connect to the database: %s", db.Code(err))
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	return fn(ctx, c)
}

// Migrator applies and checks this program's migrations.
func Migrator(log *slog.Logger) (*db.Migrator, error) { return db.NewMigrator(migrations.Files, log) }

// EnsureSchema brings the database to this program's schema, or says why that can't or mustn't be done here. fatal errors
// don't go away by waiting.
func EnsureSchema(ctx context.Context, conn *pgx.ConnConfig, migrate bool, log *slog.Logger) error {
	migrator, err := Migrator(log)
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, conn.Copy())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	status, err := migrator.Status(ctx, c)
	if err != nil {
		return err
	}
	err = status.Err()
	var pending *db.PendingError
	if migrate && (errors.Is(err, db.ErrNotMigrated) || errors.As(err, &pending)) {
		_, err = migrator.Apply(ctx, c)
	}
	return err
}
