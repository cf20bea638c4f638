package cli

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"orch/internal/app/database"
	"orch/internal/cli/exit"
	"orch/internal/db"
)

type migrateCommand struct {
	Up     migrateUpCommand     `cmd:"" default:"1" help:"Apply what is pending (the default)."`
	Status migrateStatusCommand `cmd:"" help:"List the migrations and whether each is applied."`
	Verify migrateVerifyCommand `cmd:"" help:"Exit with 1 unless the schema is exactly this program's."`
}

// migrations runs fn on the database with this program's migrations.
func (s *local) migrations(fn func(ctx context.Context, m *db.Migrator, conn *pgx.Conn) error) error {
	log := s.quietLogger()
	m, err := database.Migrator(log)
	if err != nil {
		return err
	}
	return database.With(s.Context, s.cfg, log, func(ctx context.Context, conn *pgx.Conn) error { return fn(ctx, m, conn) })
}

type migrateUpCommand struct{}

// Run applies what is pending, once no worker of an older program is left.
func (c *migrateUpCommand) Run(s *local) error {
	return s.migrations(func(ctx context.Context, m *db.Migrator, conn *pgx.Conn) error {
		applied, err := database.Migrate(ctx, conn, m, database.MigrateConfig{
			LeaseTTL: s.cfg.Worker.LeaseTTL.Duration(), Logger: s.quietLogger(),
		})
		if s.cfg.Database.Private() && db.Unreachable(err) {
			return errors.New("the server that ran the private PostgreSQL has ended meanwhile: run `orch migrate` again")
		}
		if err != nil {
			return err
		}
		if s.JSON {
			return s.PrintJSON(map[string]any{"applied": migrationNames(applied)})
		}
		if len(applied) == 0 {
			s.Print("the schema is up to date")
		}
		for _, a := range applied {
			s.Print("applied %s", a.Name)
		}
		return nil
	})
}

func migrationNames(migrations []db.Migration) []string {
	names := make([]string, 0, len(migrations))
	for _, m := range migrations {
		names = append(names, m.Name)
	}
	return names
}

type migrateStatusCommand struct{}

// Run lists the migrations.
func (c *migrateStatusCommand) Run(s *local) error {
	return s.migrations(func(ctx context.Context, m *db.Migrator, conn *pgx.Conn) error {
		status, err := m.Status(ctx, conn)
		if err != nil {
			return err
		}
		if s.JSON {
			return s.PrintJSON(schemaJSON(status))
		}
		for _, row := range status.Applied {
			s.Print("applied  %s", row.Name)
		}
		for _, p := range status.Pending {
			s.Print("pending  %s", p.Name)
		}
		if problem := status.Err(); problem != nil {
			s.Print("%s", problem)
		}
		return nil
	})
}

func schemaJSON(status db.SchemaStatus) map[string]any {
	problem := ""
	if err := status.Err(); err != nil {
		problem = err.Error()
	}
	applied := make([]string, 0, len(status.Applied))
	for _, row := range status.Applied {
		applied = append(applied, row.Name)
	}
	return map[string]any{
		"applied": applied, "pending": migrationNames(status.Pending), "ahead": len(status.Ahead), "drifted": len(status.Drifted),
		"problem": problem,
	}
}

type migrateVerifyCommand struct{}

// Run says whether the schema is this program's.
func (c *migrateVerifyCommand) Run(s *local) error {
	return s.migrations(func(ctx context.Context, m *db.Migrator, conn *pgx.Conn) error {
		status, err := m.Status(ctx, conn)
		if err != nil {
			return err
		}
		if s.JSON {
			if err := s.PrintJSON(schemaJSON(status)); err != nil {
				return err
			}
			if status.Err() != nil {
				return exit.Silently(exit.Failed)
			}
			return nil
		}
		if err := status.Err(); err != nil {
			return err
		}
		s.Print("the schema is this program's")
		return nil
	})
}
