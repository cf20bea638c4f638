package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultTTL is how long a merge lease outlives its last renewal.
const DefaultTTL = 300 * time.Second

// Config configures a Store; its zero value is usable.
type Config struct {
	TTL    time.Duration // 0 = DefaultTTL
	Logger *slog.Logger

	// OnReclaimedTx is told of each lease that is taken from its holder, in the transaction that takes it; may be nil.
	OnReclaimedTx func(ctx context.Context, tx pgx.Tx, r Reclaimed) error
}

// Store owns the table merge_leases.
type Store struct {
	pool *pgxpool.Pool
	ttl  time.Duration
	log  *slog.Logger
	tell func(ctx context.Context, tx pgx.Tx, r Reclaimed) error
}

// NewStore returns a store on the database of pool.
func NewStore(pool *pgxpool.Pool, cfg Config) *Store {
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{pool: pool, ttl: cfg.TTL, log: cfg.Logger, tell: cfg.OnReclaimedTx}
}

// TTL is how long a lease outlives its last renewal.
func (s *Store) TTL() time.Duration { return s.ttl }

// Holder is the process that holds a merge lease.
type Holder struct {
	WorkerID, RootID           uuid.UUID
	Host, BootID, PIDNamespace string
	PID                        int
	PIDStartedAt               int64 // clock ticks after the boot
}

// Verdict is what is known of a holder's process.
type Verdict string

// The verdicts on a holder. Unknown is the answer for another host, and decides nothing.
const (
	Alive   Verdict = "alive"
	Dead    Verdict = "dead"
	Unknown Verdict = "unknown"
)
