// Package overview is what people and dashboards are shown of the queue: how many jobs there are, a page of them, and which
// run. It reads, and what it has read may have changed by then: nothing is decided by it.
package overview

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue/internal/statement"
)

// Reader reads what is shown. It is safe for concurrent use.
type Reader struct{ on statement.Source }

// NewReader makes a Reader on a pool.
func NewReader(pool *pgxpool.Pool) *Reader { return &Reader{on: statement.On(pool, 0)} }
