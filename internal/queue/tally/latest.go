package tally

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue/internal/statement"
)

// Newest is the newest of what is told one at a time, such as the last job that was reaped.
type Newest struct {
	At   time.Time // by the database's clock
	Data json.RawMessage
}

// SetLatestTx makes data the newest of a name.
func SetLatestTx(ctx context.Context, tx pgx.Tx, name string, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	_, err = tx.Exec(ctx, `insert into latest (name, data) values ($1, $2)
		on conflict (name) do update set at = clock_timestamp(), data = excluded.data`, name, encoded)
	if err != nil {
		return fmt.Errorf("note %s: %w", name, err)
	}
	return nil
}

// Latest answers the newest of each name that there is any of.
func (s *Store) Latest(ctx context.Context) (map[string]Newest, error) {
	type row struct {
		Name string          `db:"name"`
		At   time.Time       `db:"at"`
		Data json.RawMessage `db:"data"`
	}
	rows, err := statement.Collect[row](ctx, s.on, `select name, at, data from latest`)
	if err != nil {
		return nil, fmt.Errorf("read what happened last: %w", err)
	}
	latest := make(map[string]Newest, len(rows))
	for _, r := range rows {
		latest[r.Name] = Newest{At: r.At, Data: r.Data}
	}
	return latest, nil
}
