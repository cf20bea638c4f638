package root

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/root/layout"
)

var errUnseen = errors.New("the database doesn't know this root as it is")

// Sight tells the database that a process of this root is alive: others count the death of its host from then on.
func (r *Root) Sight(ctx context.Context, pool *pgxpool.Pool) error {
	return sight(ctx, pool, r.marker, `generation >= $3`) // others may have started here since
}

// SightWaiting does the same for a process that can't bind the root at a path yet, for example because of a migration:
// what runs there is looked after as soon as it can. It is all that a waiting process writes. A root that doesn't fit the
// database, such as a copy that was left behind, isn't seen. Nor is one that another process is just starting on: that holds
// the start key, and whoever waits comes again sooner than it would be given up.
func SightWaiting(ctx context.Context, path string, pool *pgxpool.Pool) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	m, err := readMarker(path)
	if err != nil {
		return err
	}
	return sight(ctx, pool, m, `generation = $3 and roots.id = (select id from roots where id = $1 for no key update skip locked)`)
}

func sight(ctx context.Context, pool *pgxpool.Pool, m marker, fits string) error {
	tag, err := pool.Exec(ctx, `update roots set seen_at = clock_timestamp() from instance
		where roots.id = $1 and instance.id = $2 and roots.`+fits, m.RootID, m.InstanceID, m.Generation)
	if err != nil {
		return fmt.Errorf("tell the database that this root is alive: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errUnseen
	}
	return nil
}

// Sighted is what the database knows of a data root.
type Sighted struct {
	Host, Path string
	SeenAt     time.Time // when a process of it was last heard of
}

// Sighting looks up a data root, whosever it is; false when the database doesn't know it.
func Sighting(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID) (Sighted, bool, error) {
	var s Sighted
	err := pool.QueryRow(ctx, `select host, path, greatest(seen_at, (select max(heartbeat_at) from workers where root_id = r.id))
		from roots r where id = $1`, id).Scan(&s.Host, &s.Path, &s.SeenAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Sighted{}, false, nil
	}
	if err != nil {
		return Sighted{}, false, fmt.Errorf("look up data root %s: %w", id, err)
	}
	return s, true, nil
}

// RunsDirOf is where the root at a path keeps its runs.
func RunsDirOf(path string) string { return filepath.Join(path, layout.Runs) }
