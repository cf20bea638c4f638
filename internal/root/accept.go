package root

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"
)

// livingFor is how long after its last beat a worker that didn't say it stops is taken to be alive.
const livingFor = time.Minute

// Accepted is what an acceptance found and did.
type Accepted struct {
	Found      Status    `json:"found"`
	Changed    bool      `json:"changed"` // false: nothing differed, nothing was done
	Rebound    bool      `json:"rebound"` // it got the database's id, and a new id of its own
	RootID     uuid.UUID `json:"root_id"`
	Generation int64     `json:"generation"`
}

// Accept makes a root and a database that don't fit belong together again, for a person who restored one of them: both
// get a generation above all that either had, so that whatever else is a copy of them fits no more. A root of another database is
// accepted with Config.Rebind only. It needs the root for itself: ErrInUse while anyone works in it, LivingError while
// anyone works in a copy, or in what this is a copy of. What is interrupted is refused as it was before, or done; it may be called again.
func Accept(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (Accepted, error) {
	a, err := accept(ctx, path, pool, cfg)
	if err != nil {
		return a, fmt.Errorf("accept the data root %s: %w", path, err)
	}
	return a, nil
}

func accept(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (Accepted, error) {
	if err := Bound(path); err != nil {
		return Accepted{}, err
	}
	b, err := newBinder(path, pool, cfg, os.O_CREATE)
	if err != nil {
		return Accepted{}, err
	}
	var a Accepted
	err = b.patiently(ctx, func() error {
		a, err = b.accept(ctx)
		return err
	}, ErrBusy)
	return a, errors.Join(err, b.lock.close())
}

func (b *binder) accept(ctx context.Context) (Accepted, error) {
	if err := b.lock.try(unix.LOCK_EX); err != nil {
		return Accepted{}, err
	}
	b.at("accept locked")
	p, err := b.observe(ctx)
	if err != nil {
		return Accepted{}, err
	}
	a := Accepted{Found: p.status(b.cfg.Testing), RootID: p.marker.RootID, Generation: p.marker.Generation}
	foreign := p.marker.InstanceID != p.instance.ID
	if foreign && !b.cfg.Rebind {
		return a, p.foreign()
	}
	if err := p.admitTesting(b.cfg.Testing); err != nil {
		return a, err
	}
	if _, err := p.settled(); err == nil && !foreign {
		return a, b.original(ctx, p)
	}
	root := p.marker.RootID
	if err := b.alone(ctx, root); err != nil {
		return a, err
	}
	if foreign {
		root = uuid.New() // jobs pinned to its id, and the id's row, are of the other database
	}
	m, err := b.bump(ctx, root, func(p pair) (marker, error) { return p.accepted(root), nil })
	if err != nil {
		return a, err
	}
	a.Changed, a.Rebound, a.RootID, a.Generation = true, foreign, m.RootID, m.Generation
	return a, nil
}

// accepted is what both sides are moved on from. Its nonce is nobody's: with the intent alone, before the row, they
// fit as little as before.
func (p pair) accepted(root uuid.UUID) marker {
	m := p.marker
	m.InstanceID, m.RootID = p.instance.ID, root
	m.Generation, m.Nonce, m.Next = max(m.Generation, p.row.Generation), uuid.New(), uuid.Nil
	return m
}

// alone refuses while a worker of the same root beats. The caller knows that it isn't in this directory.
func (b *binder) alone(ctx context.Context, root uuid.UUID) error {
	const sql = `
		select host, pid, extract(epoch from clock_timestamp() - heartbeat_at)::float8 from workers
		where root_id = $1 and stopped_at is null and heartbeat_at > clock_timestamp() - $2::interval
		order by heartbeat_at desc limit 1`
	var (
		living LivingError
		age    float64
	)
	err := b.pool.QueryRow(ctx, sql, root, livingFor).Scan(&living.Host, &living.PID, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for living workers: %w", err)
	}
	living.Age = time.Duration(age * float64(time.Second))
	return &living
}
