package root

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// instance is the database's own row.
type instance struct {
	ID      uuid.UUID
	Setup   string
	Testing bool
}

const (
	setupUnconfigured = "unconfigured"
	setupReady        = "ready"
)

// create writes the marker of a new root. The lock is held exclusively.
func (b *binder) create(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	return b.inTx(ctx, func(tx pgx.Tx, inst instance) error {
		m := marker{InstanceID: inst.ID, RootID: uuid.New(), Testing: inst.Testing}
		if err := writeMarker(b.path, m); err != nil {
			return err
		}
		return b.settle(ctx, tx, m)
	})
}

// check compares marker and database, and notes that the root was seen. The lock is held shared.
func (b *binder) check(ctx context.Context, m marker) error {
	return b.inTx(ctx, func(tx pgx.Tx, inst instance) error {
		file := filepath.Join(b.path, markerName)
		if m.InstanceID != inst.ID {
			return &ForeignError{Path: file, Marker: m.InstanceID, Database: inst.ID}
		}
		if m.Testing != b.cfg.Testing {
			return &TestingError{What: "the data root " + b.path, Marked: m.Testing}
		}
		if inst.Testing != b.cfg.Testing {
			return &TestingError{What: "the database", Marked: inst.Testing}
		}
		var generation int64
		err := tx.QueryRow(ctx, "select generation from roots where id = $1 for update", m.RootID).Scan(&generation)
		if errors.Is(err, pgx.ErrNoRows) {
			if m.Generation == 0 { // its creator died before it committed
				return b.settle(ctx, tx, m)
			}
			generation, err = -1, nil
		}
		if err != nil {
			return fmt.Errorf("read the root's row: %w", err)
		}
		if generation != m.Generation {
			return &PairingError{Path: file, Marker: m.Generation, Row: generation}
		}
		if _, err := tx.Exec(ctx, "update roots set host = $2, path = $3, seen_at = now() where id = $1", m.RootID, b.cfg.Host, b.path); err != nil {
			return fmt.Errorf("update the root's row: %w", err)
		}
		return nil
	})
}

// begin marks the set-up as begun, for the first root of a database. Committed by itself, so that whoever waits for the
// set-up sees it; a crash after it is no harm, the next creator goes on.
func (b *binder) begin(ctx context.Context) error {
	return b.inTx(ctx, func(tx pgx.Tx, inst instance) error {
		if inst.Setup != setupUnconfigured {
			if inst.Testing != b.cfg.Testing {
				return &TestingError{What: "the database", Marked: inst.Testing}
			}
			return nil
		}
		if _, err := tx.Exec(ctx, "update instance set setup = 'bootstrapping', testing = $1", b.cfg.Testing); err != nil {
			return fmt.Errorf("begin the set-up: %w", err)
		}
		return nil
	})
}

// settle inserts the root's row, and finishes the set-up if it isn't finished.
func (b *binder) settle(ctx context.Context, tx pgx.Tx, m marker) error {
	const insert = "insert into roots (id, host, path, generation) values ($1, $2, $3, $4)"
	if _, err := tx.Exec(ctx, insert, m.RootID, b.cfg.Host, b.path, m.Generation); err != nil {
		return fmt.Errorf("insert the root's row: %w", err)
	}
	if _, err := tx.Exec(ctx, "update instance set setup = $1, testing = $2 where setup <> $1", setupReady, m.Testing); err != nil {
		return fmt.Errorf("finish the set-up: %w", err)
	}
	return nil
}

// inTx runs fn in a transaction with the instance's row locked, the one that all binders of a database meet at.
func (b *binder) inTx(ctx context.Context, fn func(tx pgx.Tx, inst instance) error) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		var inst instance
		err := tx.QueryRow(ctx, "select id, setup, testing from instance for update").Scan(&inst.ID, &inst.Setup, &inst.Testing)
		if err != nil {
			return fmt.Errorf("read the database's instance: %w", err)
		}
		return fn(tx, inst)
	})
}
