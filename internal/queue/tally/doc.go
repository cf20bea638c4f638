// Package tally keeps what happened for those who are told of it: totals that only grow since the database was made, and the
// newest of what is told one at a time. Both are written in the transaction of what they tell of.
package tally

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue/internal/statement"
)

// Store reads what was kept. It is safe for concurrent use.
type Store struct{ on statement.Source }

// NewStore makes a Store on a pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{on: statement.On(pool, 0)} }
