package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// bump takes the start key and moves marker and row on by one. base says what from, given what is found under the key.
func (b *binder) bump(ctx context.Context, root uuid.UUID, base func(pair) (marker, error)) (marker, error) {
	f, err := newFence(b.path)
	if err != nil {
		return marker{}, err
	}
	defer f.remove()
	b.at("fenced")
	var next marker
	err = b.inTx(ctx, func(tx pgx.Tx) error {
		next, err = b.advance(ctx, tx, f, root, base)
		return err
	})
	if err != nil {
		return marker{}, err
	}
	b.at("committed")
	// From here on another starter may have confirmed for us, and taken our fence away.
	if err := f.place(confirmFile); err != nil && !errors.Is(err, ErrBusy) {
		return marker{}, err
	}
	b.at("confirmed")
	return next, nil
}

// advance is what a bump does under the key.
func (b *binder) advance(ctx context.Context, tx pgx.Tx, f *fence, root uuid.UUID, base func(pair) (marker, error)) (marker, error) {
	if err := takeKey(ctx, tx, root); err != nil {
		return marker{}, err
	}
	b.at("key taken")
	if err := f.takeOthers(); err != nil {
		return marker{}, err
	}
	p, err := b.read(ctx, tx)
	if err != nil {
		return marker{}, err
	}
	m, err := base(p)
	if err != nil {
		return marker{}, err
	}
	b.at("compared")
	next := m
	next.Generation, next.Nonce = m.Generation+1, f.nonce
	m.Next = f.nonce
	if err := errors.Join(f.stage(intentFile, m), f.stage(confirmFile, next)); err != nil {
		return marker{}, err
	}
	b.at("staged")
	if err := f.place(intentFile); err != nil {
		return marker{}, err
	}
	b.at("intended")
	if err := b.writeRow(ctx, tx, next); err != nil {
		return marker{}, err
	}
	b.at("written")
	return next, nil
}

// takeKey locks the root's row, or the instance's when there is none. Foreign keys to the row, which workers and runs
// have, don't hold it.
func takeKey(ctx context.Context, tx pgx.Tx, root uuid.UUID) error {
	tag, err := tx.Exec(ctx, "select from roots where id = $1 for no key update nowait", root)
	if err == nil && tag.RowsAffected() == 0 {
		_, err = tx.Exec(ctx, "select from instance for update nowait")
	}
	if err != nil {
		return fmt.Errorf("take the start key: %w", err)
	}
	return nil
}

// writeRow writes the row of a start. A root's first finishes the set-up of the database.
func (b *binder) writeRow(ctx context.Context, tx pgx.Tx, m marker) error {
	const sql = `
		insert into roots (id, host, path, generation, nonce) values ($1, $2, $3, $4, $5)
		on conflict (id) do update set host = excluded.host, path = excluded.path, generation = excluded.generation,
			nonce = excluded.nonce, seen_at = clock_timestamp()`
	if _, err := tx.Exec(ctx, sql, m.RootID, b.cfg.Host, b.path, m.Generation, m.Nonce); err != nil {
		return fmt.Errorf("write the root's row: %w", err)
	}
	if _, err := tx.Exec(ctx, "update instance set setup = $1, testing = $2 where setup <> $1", setupReady, m.Testing); err != nil {
		return fmt.Errorf("finish the set-up: %w", err)
	}
	return nil
}

const (
	fencePrefix = "root.start-"
	intentFile  = "intent.json"
	confirmFile = "confirm.json"
)

// fence is the directory that all of a starter's writes to the marker go through, so that they can be forbidden by
// taking it away. Made before the key is asked for: one made later could be made too late.
type fence struct {
	path  string // the root
	dir   string
	nonce uuid.UUID
}

func newFence(path string) (*fence, error) {
	f := &fence{path: path, nonce: uuid.New()}
	f.dir = filepath.Join(path, fencePrefix+f.nonce.String())
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return nil, &WriteError{Path: markerFile(path), Err: err}
	}
	return f, nil
}

// takeOthers takes the fences of all other starters away: of dead ones, of stopped ones, and of those that don't have
// the key yet and will try again. One rename each, so that none is there by half.
func (f *fence) takeOthers() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return f.failure(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, fencePrefix) || name == filepath.Base(f.dir) {
			continue
		}
		err := os.Rename(filepath.Join(f.path, name), filepath.Join(f.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its owner removed it
			return f.failure(err)
		}
	}
	return nil
}

func (f *fence) stage(name string, m marker) error {
	return f.failure(stageMarker(filepath.Join(f.dir, name), m))
}

func (f *fence) place(name string) error {
	return f.failure(placeMarker(f.path, filepath.Join(f.dir, name)))
}

// failure tells a fence that was taken away from a disk that doesn't take writes.
func (f *fence) failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrBusy
	default:
		return &WriteError{Path: markerFile(f.path), Err: err}
	}
}

// remove may fail: whatever is left, the next starter takes away.
func (f *fence) remove() { _ = os.RemoveAll(f.dir) }
