// Package database says how to reach the database, runs the private one, and keeps the schema this program's.
//
// # A migration and living workers
//
// A worker must not meet a schema that its program doesn't know. So Migrate announces in the row of the instance what it
// migrates to, and renews that while it waits: workers of older programs see it with their next beat, claim nothing more
// and end when their jobs have. Once no worker of an older program lives, the migrations are applied. A program that
// starts meanwhile and is older than the announced schema waits too. An announcement that nobody renews runs out.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/root"
	"orch/internal/root/layout"
	"orch/migrations"
)

// StopTimeout bounds the end of the private PostgreSQL.
const StopTimeout = 45 * time.Second

// ConnConfig says how to reach the database: the given one, or the private one that somebody runs in the data root.
func ConnConfig(cfg *config.Config) (*pgx.ConnConfig, error) {
	if cfg.Database.Private() {
		return pgembed.Connect(root.PGDir(cfg.Data.Root), pgembed.Database)
	}
	return parse("ORCH_DATABASE_URL", cfg.Database.URL)
}

// CheckURLs says which of the given URLs can't be used.
func CheckURLs(cfg *config.Config) error {
	if cfg.Database.Private() {
		return nil
	}
	_, err := ConnConfig(cfg)
	if cfg.Database.ListenURL == cfg.Database.URL { // not given
		return err
	}
	_, listenErr := ListenConfig(cfg)
	return errors.Join(err, listenErr)
}

func parse(variable string, url config.Secret) (*pgx.ConnConfig, error) {
	conn, err := db.ParseURL(url.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s can't be used: %w", variable, err)
	}
	return conn, nil
}

// ListenConfig is the same for the listener, which may need a way around a transaction pooler.
func ListenConfig(cfg *config.Config) (*pgx.ConnConfig, error) {
	if cfg.Database.Private() || cfg.Database.ListenURL.Empty() {
		return ConnConfig(cfg)
	}
	return parse("ORCH_DATABASE_LISTEN_URL", cfg.Database.ListenURL)
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
	conn, stop, err := reach(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c, err := Connect(ctx, conn)
	if err != nil {
		return err
	}
	defer Close(ctx, c)
	return fn(ctx, c)
}

// WithPool is With for what needs a pool.
func WithPool(ctx context.Context, cfg *config.Config, log *slog.Logger, fn func(ctx context.Context, pool *pgxpool.Pool) error) (err error) {
	conn, stop, err := reach(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, err := db.Open(ctx, db.Config{Conn: conn, MaxConns: 2, Logger: log})
	if err != nil {
		return err
	}
	defer pool.Close()
	return fn(ctx, pool)
}

// reach says how to reach the database, and starts the private PostgreSQL when nobody runs it; stop ends it again.
func reach(ctx context.Context, cfg *config.Config, log *slog.Logger) (conn *pgx.ConnConfig, stop func() error, err error) {
	conn, err = ConnConfig(cfg)
	if err == nil {
		return conn, func() error { return nil }, nil
	}
	if !errors.Is(err, pgembed.ErrNotRunning) {
		return nil, nil, err
	}
	if err := layout.Prepare(cfg.Data.Root); err != nil {
		return nil, nil, err
	}
	server, err := startPostgres(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	return server.ConnConfig(pgembed.Database), func() error {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
		defer cancel()
		return server.Stop(ending)
	}, nil
}

// closeTimeout bounds a goodbye.
const closeTimeout = time.Second

// Connect opens a connection beside the pool, under the same limits.
func Connect(ctx context.Context, conn *pgx.ConnConfig) (*pgx.Conn, error) {
	return db.Connect(ctx, db.Config{Conn: conn})
}

// Close says goodbye to the server, for no longer than a moment and also when ctx is over.
func Close(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx) // gone either way
}

// Migrator applies and checks this program's migrations.
func Migrator(log *slog.Logger) (*db.Migrator, error) { return db.NewMigrator(migrations.Files, log) }

// Newest is the number of the newest migration that this program knows.
func Newest() (int, error) {
	known, err := db.LoadMigrations(migrations.Files)
	return len(known), err
}

// EnsureSchema says what keeps a process from working on this schema. With migrate it brings the database to this program's
// schema first.
func EnsureSchema(ctx context.Context, conn *pgx.Conn, migrate bool, cfg MigrateConfig) error {
	migrator, err := Migrator(cfg.Logger)
	if err != nil {
		return err
	}
	status, err := migrator.Status(ctx, conn)
	if err != nil {
		return err
	}
	err = status.Err()
	var pending *db.PendingError
	switch {
	case err == nil:
		return refuseAnnounced(ctx, conn, len(status.Applied))
	case migrate && (errors.Is(err, db.ErrNotMigrated) || errors.As(err, &pending)):
		_, err = Migrate(ctx, conn, migrator, cfg)
	}
	return err
}

// Verify says what keeps a command from working on this schema.
func Verify(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", db.Public(err))
	}
	defer conn.Release()
	return EnsureSchema(ctx, conn.Conn(), false, MigrateConfig{Logger: slog.New(slog.DiscardHandler)})
}
