package merge

import (
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultLockTimeout is how long a merge lease outlives its last renewal.
const DefaultLockTimeout = 300 * time.Second

// StoreConfig configures a Store; its zero value is usable.
type StoreConfig struct {
	LockTimeout time.Duration // 0 = DefaultLockTimeout
	Logger      *slog.Logger
}

// Store owns the tables merge_leases and merge_attempts.
type Store struct {
	pool *pgxpool.Pool
	ttl  time.Duration
	log  *slog.Logger
}

// NewStore returns a store on the database of pool.
func NewStore(pool *pgxpool.Pool, cfg StoreConfig) *Store {
	if cfg.LockTimeout <= 0 {
		cfg.LockTimeout = DefaultLockTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{pool: pool, ttl: cfg.LockTimeout, log: cfg.Logger}
}

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
