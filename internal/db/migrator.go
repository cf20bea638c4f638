package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// migrationLock is the advisory lock of schema changes: "orch" in ASCII, followed by 1.
const migrationLock = int64(0x6f72636800000001)

const createLedger = `
create table if not exists schema_migrations (
  version    integer primary key,
  name       text not null,
  sha256     text not null,
  applied_at timestamptz not null default now()
)`

// Migrator applies the migrations it was made with, and compares a database with them. It keeps no state, so that
// one may serve any number of connections.
type Migrator struct {
	migrations []Migration
	log        *slog.Logger
}

// NewMigrator reads the migrations in fsys.
func NewMigrator(fsys fs.FS, log *slog.Logger) (*Migrator, error) {
	migrations, err := LoadMigrations(fsys)
	if err != nil {
		return nil, err
	}
	return &Migrator{migrations: migrations, log: orDiscard(log)}, nil
}

// Hash names the text of all migrations together, for whoever caches a migrated database.
func (m *Migrator) Hash() string {
	sum := sha256.New()
	for _, migration := range m.migrations {
		fmt.Fprintf(sum, "%s %s\n", migration.Name, migration.SHA256) // a hash never fails to write
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Apply brings the database up to date and answers what this call applied. A migration that fails leaves the ones
// before it applied and nothing of itself. Nothing is applied to a database that drifted or is ahead.
func (m *Migrator) Apply(ctx context.Context, conn *pgx.Conn) ([]Migration, error) {
	var applied []Migration
	for {
		migration, err := m.applyNext(ctx, conn)
		if err != nil {
			return applied, err
		}
		if migration == nil {
			return applied, nil
		}
		applied = append(applied, *migration)
	}
}

// applyNext applies the first pending migration; nil when there is none. Whether one is pending is asked under the
// lock: another program may just have applied it.
func (m *Migrator) applyNext(ctx context.Context, conn *pgx.Conn) (*Migration, error) {
	var next *Migration
	start := time.Now()
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockSchema(ctx, tx); err != nil {
			return err
		}
		status, err := m.status(ctx, tx)
		if err != nil {
			return err
		}
		if len(status.Drifted) > 0 || len(status.Ahead) > 0 {
			return status.Err()
		}
		if len(status.Pending) == 0 {
			return nil
		}
		next = &status.Pending[0]
		return applyOne(ctx, tx, *next)
	})
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if next != nil {
		m.log.InfoContext(ctx, "migration applied", slog.String("migration", next.Name), slog.Duration("took", time.Since(start)))
	}
	return next, nil
}

// lockSchema waits for its turn as long as ctx allows: the limits that a pool's connections carry would end a long
// migration, or the wait for somebody else's.
func lockSchema(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "set local statement_timeout = 0; set local lock_timeout = 0"); err != nil {
		return fmt.Errorf("lift the timeouts: %w", err)
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", migrationLock); err != nil {
		return fmt.Errorf("wait for the migration lock: %w", err)
	}
	if _, err := tx.Exec(ctx, createLedger); err != nil {
		return fmt.Errorf("create schema_migrations: %w", err)
	}
	return nil
}

func applyOne(ctx context.Context, tx pgx.Tx, migration Migration) error {
	// Without arguments the text goes to the server as it is and may hold many statements.
	if _, err := tx.Exec(ctx, migration.SQL); err != nil {
		return fmt.Errorf("apply %s: %w", migration.Name, err)
	}
	const inTransaction = 'T'
	if tx.Conn().PgConn().TxStatus() != inTransaction {
		return fmt.Errorf("apply %s: %w", migration.Name, errEndsTransaction)
	}
	const insert = "insert into schema_migrations (version, name, sha256) values ($1, $2, $3)"
	if _, err := tx.Exec(ctx, insert, migration.Version, migration.Name, migration.SHA256); err != nil {
		return fmt.Errorf("record %s: %w", migration.Name, err)
	}
	return nil
}

var errEndsTransaction = errors.New("a migration must not end the transaction it runs in")

// Status compares the database with this program's migrations. It changes nothing.
func (m *Migrator) Status(ctx context.Context, conn *pgx.Conn) (SchemaStatus, error) {
	status, err := m.status(ctx, conn)
	if err != nil {
		return SchemaStatus{}, fmt.Errorf("schema status: %w", err)
	}
	return status, nil
}

// querier is what a connection and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (m *Migrator) status(ctx context.Context, q querier) (SchemaStatus, error) {
	applied, err := readLedger(ctx, q)
	if err != nil {
		return SchemaStatus{}, err
	}
	return compare(m.migrations, applied), nil
}

func readLedger(ctx context.Context, q querier) ([]AppliedRow, error) {
	var exists bool
	if err := q.QueryRow(ctx, "select to_regclass('schema_migrations') is not null").Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for schema_migrations: %w", err)
	}
	if !exists {
		return nil, nil
	}
	rows, err := q.Query(ctx, "select version, name, sha256, applied_at from schema_migrations order by version")
	if err != nil {
		return nil, fmt.Errorf("read schema_migrations: %w", err)
	}
	applied, err := pgx.CollectRows(rows, pgx.RowToStructByPos[AppliedRow])
	if err != nil {
		return nil, fmt.Errorf("read schema_migrations: %w", err)
	}
	return applied, nil
}

func compare(known []Migration, applied []AppliedRow) SchemaStatus {
	status := SchemaStatus{Applied: applied}
	last := 0
	if len(applied) > 0 {
		last = applied[len(applied)-1].Version
	}
	for _, migration := range known {
		i := slices.IndexFunc(applied, func(row AppliedRow) bool { return row.Version == migration.Version })
		switch {
		case i < 0 && migration.Version < last:
			status.Drifted = append(status.Drifted, Drift{File: migration})
		case i < 0:
			status.Pending = append(status.Pending, migration)
		case applied[i].SHA256 != migration.SHA256:
			status.Drifted = append(status.Drifted, Drift{File: migration, Applied: &applied[i]})
		}
	}
	for _, row := range applied {
		if row.Version > len(known) || row.Version < 1 {
			status.Ahead = append(status.Ahead, row)
		}
	}
	return status
}
