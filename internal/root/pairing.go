package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// instance is the database's own row.
type instance struct {
	ID      uuid.UUID
	Setup   string
	Testing bool
}

const (
	setupUnconfigured  = "unconfigured"
	setupBootstrapping = "bootstrapping"
	setupReady         = "ready"
)

// row is what the database knows of the root's last start.
type row struct {
	Generation int64 // -1: it doesn't know the root
	Nonce      uuid.UUID
}

// pair is what a start compares.
type pair struct {
	path     string
	marker   marker
	instance instance
	row      row
	host     string // of the last start
	dir      string // of the last start
}

// created says that the root got its marker, and never its first start.
func (p pair) created() bool {
	return p.row.Generation < 0 && p.marker.Generation == 0 && p.marker.InstanceID == p.instance.ID
}

// unfinished says what a root that is just created is waiting for.
func (p pair) unfinished() error {
	if p.instance.Setup != setupReady {
		return ErrSetupPending
	}
	return ErrUnbound
}

// admit says what speaks against a start whatever the generations are.
func (p pair) admit(testing, joining bool) error {
	if p.marker.InstanceID != p.instance.ID {
		return p.foreign()
	}
	if joining && p.instance.Setup != setupReady {
		return ErrSetupPending
	}
	return p.admitTesting(testing)
}

func (p pair) foreign() error {
	return &ForeignError{Path: markerFile(p.path), Marker: p.marker.InstanceID, Database: p.instance.ID}
}

func (p pair) admitTesting(testing bool) error {
	if p.marker.Testing != testing {
		return &TestingError{What: "the data root " + p.path, Marked: p.marker.Testing}
	}
	return p.instance.admitTesting(testing)
}

func (i instance) admitTesting(testing bool) error {
	if i.Setup != setupUnconfigured && i.Testing != testing {
		return &TestingError{What: "the database", Marked: i.Testing}
	}
	return nil
}

// settled returns the marker as it is once an interrupted bump is finished or forgotten, or what speaks against a start.
func (p pair) settled() (marker, error) {
	m, r := p.marker, p.row
	next := m.Next
	m.Next = uuid.Nil
	switch {
	case p.created(), r == row{m.Generation, m.Nonce}:
		return m, nil
	case next != uuid.Nil && r == row{m.Generation + 1, next}:
		m.Generation, m.Nonce = r.Generation, r.Nonce
		return m, nil
	}
	return marker{}, &PairingError{Path: markerFile(p.path), Marker: m.Generation, Row: r.Generation}
}

// observe reads marker and database while others may be starting. A marker that stayed the same meanwhile, which no two
// starts have in common, was compared with a row of its own time.
func (b *binder) observe(ctx context.Context) (pair, error) {
	for range 10 {
		p, err := b.read(ctx, b.pool)
		if err != nil {
			return pair{}, err
		}
		if again, err := readMarker(b.path); err != nil || again == p.marker {
			return p, err
		}
	}
	return pair{}, ErrBusy
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// read reads the marker, then what the database says about it.
func (b *binder) read(ctx context.Context, db querier) (pair, error) {
	m, err := readMarker(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return pair{}, ErrUnbound
	}
	if err != nil {
		return pair{}, err
	}
	p := pair{path: b.path, marker: m}
	const sql = `
		select i.id, i.setup, i.testing, coalesce(r.generation, -1), coalesce(r.nonce, '00000000-0000-0000-0000-000000000000'),
			coalesce(r.host, ''), coalesce(r.path, '')
		from instance i left join roots r on r.id = $1`
	err = db.QueryRow(ctx, sql, m.RootID).Scan(&p.instance.ID, &p.instance.Setup, &p.instance.Testing,
		&p.row.Generation, &p.row.Nonce, &p.host, &p.dir)
	if err != nil {
		return pair{}, fmt.Errorf("read what the database knows of the root: %w", err)
	}
	return p, nil
}

// begin marks the set-up as begun, for the first root of a database. Committed by itself, so that whoever waits for the
// set-up sees it; a crash after it is no harm, the next creator goes on.
func (b *binder) begin(ctx context.Context) (instance, error) {
	var inst instance
	err := b.inTx(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "select id, setup, testing from instance for update nowait").Scan(&inst.ID, &inst.Setup, &inst.Testing)
		if err != nil {
			return fmt.Errorf("read the database's instance: %w", err)
		}
		if inst.Setup != setupUnconfigured {
			return inst.admitTesting(b.cfg.Testing)
		}
		inst.Setup, inst.Testing = setupBootstrapping, b.cfg.Testing
		if _, err := tx.Exec(ctx, "update instance set setup = $1, testing = $2", inst.Setup, inst.Testing); err != nil {
			return fmt.Errorf("begin the set-up: %w", err)
		}
		return nil
	})
	return inst, err
}

// inTx runs fn in a transaction that ends by itself when this process is stopped in it, and whose commit outlives a crash
// of the server. Locks are taken without waiting: one that is taken is ErrBusy, as is having been stopped for too long.
func (b *binder) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		const sql = "select set_config('idle_in_transaction_session_timeout', $1, true), set_config('synchronous_commit', 'on', true)"
		if _, err := tx.Exec(ctx, sql, strconv.FormatInt(b.cfg.idle.Milliseconds(), 10)); err != nil {
			return fmt.Errorf("begin a start: %w", err)
		}
		return fn(tx)
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "55P03" || pg.Code == "25P03") {
		return ErrBusy
	}
	return err
}
