package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue/internal/statement"
)

// Channels of the notifications that the queue sends. All of them are hints.
const (
	ChannelJobs    = "orch_jobs"    // payload: the lane that has a job
	ChannelControl = "orch_control" // payload "beat": a worker should beat now, a cancel waits for it
)

// Config is what a Queue needs; zero values get defaults.
type Config struct {
	LeaseTTL     time.Duration // how long a lease holds without a beat; default 60 s
	QueryTimeout time.Duration // bound of each statement, waiting for a connection included; default 10 s
	BackoffBase  time.Duration // wait before the second attempt; default 5 s, doubled for each further one
	BackoffMax   time.Duration // cap of that wait; default 15 min
	Logger       *slog.Logger  // nil = silent

	// OnFailed is called in the transaction of every transition to failed; its error undoes the transition.
	OnFailed func(ctx context.Context, tx pgx.Tx, job Job, code, message string) error
}

// Queue is the table jobs seen from one process. It is safe for concurrent use.
type Queue struct {
	pool *pgxpool.Pool
	cfg  Config

	mu      sync.Mutex
	holders map[uuid.UUID]*holder // by worker id
}

// New makes a Queue on a pool.
func New(pool *pgxpool.Pool, cfg Config) *Queue {
	setDefault(&cfg.LeaseTTL, time.Minute)
	setDefault(&cfg.QueryTimeout, statement.DefaultTimeout)
	setDefault(&cfg.BackoffBase, 5*time.Second)
	setDefault(&cfg.BackoffMax, 15*time.Minute)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Queue{pool: pool, cfg: cfg, holders: map[uuid.UUID]*holder{}}
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// LeaseTTL is how long a lease holds without a beat.
func (q *Queue) LeaseTTL() time.Duration { return q.cfg.LeaseTTL }

// QueryTimeout is the bound of each statement.
func (q *Queue) QueryTimeout() time.Duration { return q.cfg.QueryTimeout }

// source is for what is read in one statement.
func (q *Queue) source() statement.Source { return statement.On(q.pool, q.cfg.QueryTimeout) }

// bounded limits one statement, or a short transaction.
func (q *Queue) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, q.cfg.QueryTimeout)
}

// detached is for what must be written although ctx is over.
func (q *Queue) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), q.cfg.QueryTimeout)
}

// seconds is how durations are given to make_interval.
func seconds(d time.Duration) float64 { return d.Seconds() }
