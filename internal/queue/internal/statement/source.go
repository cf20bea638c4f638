package statement

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultTimeout bounds statements when nobody says otherwise.
const DefaultTimeout = 10 * time.Second

// Source is a pool whose statements are bounded.
type Source struct {
	Pool    *pgxpool.Pool
	Timeout time.Duration // of each statement, waiting for a connection included
}

// On is a Source on a pool; a timeout of zero is the default.
func On(pool *pgxpool.Pool, timeout time.Duration) Source {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return Source{Pool: pool, Timeout: timeout}
}

// Bounded limits one statement, or a short transaction.
func (s Source) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Timeout)
}

// Collect reads rows into structs.
func Collect[T any](ctx context.Context, s Source, sql string, args ...any) ([]T, error) {
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	rows, err := s.Pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// CollectByIndex is Collect for statements that must not depend on statistics: a plan that reads the whole table would
// read all that has ended too.
func CollectByIndex[T any](ctx context.Context, s Source, sql string, args ...any) (out []T, err error) {
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{BeginQuery: beginByIndex}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	return out, err
}
