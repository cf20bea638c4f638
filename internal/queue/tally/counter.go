package tally

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue/internal/statement"
)

// AddCounterTx adds to a total that is kept since the database was made.
func AddCounterTx(ctx context.Context, tx pgx.Tx, name string, n int64) error {
	_, err := tx.Exec(ctx, `insert into counters as c (name, total) values ($1, $2)
on conflict (name) do update set total = c.total + excluded.total`, name, n)
	if err != nil {
		return fmt.Errorf("add to counter %s: %w", name, err)
	}
	return nil
}

// Counters returns all those totals.
func (s *Store) Counters(ctx context.Context) (map[string]int64, error) {
	type row struct {
		Name  string
		Total int64
	}
	rows, err := statement.Collect[row](ctx, s.on, `select name, total from counters`)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	counters := make(map[string]int64, len(rows))
	for _, r := range rows {
		counters[r.Name] = r.Total
	}
	return counters, nil
}
