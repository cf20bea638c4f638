package statement

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// ByIndexSQL pins the plans: the statistics of a queue are always wrong, and each of these statements has one right
// plan, along an index in its order, at every size.
const ByIndexSQL = `select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

const beginByIndex = `begin; ` + ByIndexSQL

// ByIndex begins a batch whose statements have pinned plans. Sent, it is one transaction and one round trip, so no
// claimer that is stopped keeps rows locked.
func ByIndex() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(ByIndexSQL)
	return batch
}

// Batcher is a connection or a transaction.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}
