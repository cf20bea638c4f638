package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

const (
	defaultMaxAttempts = 3
	dedupeTries        = 20
)

var (
	errNoKind     = errors.New("kind and lane must be named")
	errTwinPlayed = errors.New("its twin came and went too often")
)

// Insert is a job to be queued.
type Insert struct {
	Kind, Lane     string
	Repo           string    // repository it works on; "" = none, which any worker serves
	Args           any       // marshalled to JSON; nil = {}
	Priority       int       // higher goes first
	RunAt          time.Time // not before; zero = now, by the database's clock
	MaxAttempts    int       // 0 = 3
	DedupeKey      string    // at most one live job has it
	ConcurrencyKey string    // at most one running job has it
	TaskID         int64     // 0 = none
	PinnedRoot     uuid.UUID // only workers of this root; zero = any
}

// Inserted says what became of an Insert.
type Inserted struct {
	ID        int64
	Duplicate bool // nothing was queued: ID is the live job with the same dedupe key
}

// TaskKey is the dedupe key that all jobs of one task share.
func TaskKey(taskID int64) string { return "task:" + strconv.FormatInt(taskID, 10) }

// Enqueue queues a job in a transaction of its own.
func (q *Queue) Enqueue(ctx context.Context, in Insert) (Inserted, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	return enqueue(ctx, q.pool, in) // one statement is a transaction, in one round trip
}

const insertSQL = `
with added as (
	insert into jobs (kind, lane, repo, args, priority, run_at, max_attempts, dedupe_key, concurrency_key, task_id, pinned_root)
	values (@kind, @lane, @repo, @args, @priority, coalesce(@run_at, now()), @max_attempts, @dedupe, @concurrency, @task, @pinned)
	on conflict (dedupe_key) where dedupe_key is not null and state in ('queued', 'running') do nothing
	returning id, lane)
select id, case when ` + db.NotifyRoom + ` then pg_notify('` + ChannelJobs + `', lane)::text end from added`

// EnqueueTx queues a job when tx commits, and wakes the workers of its lane then. With a dedupe key that a live job
// has, nothing is queued and that job's id is returned. tx must be READ COMMITTED, as all of orch's are.
func EnqueueTx(ctx context.Context, tx pgx.Tx, in Insert) (Inserted, error) {
	return enqueue(ctx, tx, in)
}

// rowQuerier is the pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func enqueue(ctx context.Context, on rowQuerier, in Insert) (Inserted, error) {
	args, err := in.named()
	if err != nil {
		return Inserted{}, fmt.Errorf("enqueue %s job: %w", in.Kind, err)
	}
	sql, numbered := statement.Number(insertSQL, args)
	// The twin may end between the two statements: then there is room, or a new twin.
	for range dedupeTries {
		var out Inserted
		var told *string
		err := on.QueryRow(ctx, sql, numbered...).Scan(&out.ID, &told)
		if err == nil {
			return out, nil
		}
		if !isNoRows(err) {
			return Inserted{}, fmt.Errorf("enqueue %s job: %w", in.Kind, err)
		}
		err = on.QueryRow(ctx, `select id from jobs where dedupe_key = $1 and state in ('queued', 'running')`, in.DedupeKey).
			Scan(&out.ID)
		if err == nil {
			out.Duplicate = true
			return out, nil
		}
		if !isNoRows(err) {
			return Inserted{}, fmt.Errorf("find twin of %s job: %w", in.Kind, err)
		}
	}
	return Inserted{}, fmt.Errorf("enqueue %s job: %w", in.Kind, errTwinPlayed)
}

// Encode checks an Insert, fills in its defaults and marshals its arguments.
func (in Insert) Encode() (Insert, json.RawMessage, error) {
	if in.Kind == "" || in.Lane == "" {
		return in, nil, errNoKind
	}
	raw := json.RawMessage(`{}`)
	if in.Args != nil {
		var err error
		if raw, err = json.Marshal(in.Args); err != nil {
			return in, nil, fmt.Errorf("marshal args: %w", err)
		}
	}
	if in.MaxAttempts == 0 {
		in.MaxAttempts = defaultMaxAttempts
	}
	return in, raw, nil
}

func (in Insert) named() (pgx.NamedArgs, error) {
	in, raw, err := in.Encode()
	if err != nil {
		return nil, err
	}
	return pgx.NamedArgs{
		"kind": in.Kind, "lane": in.Lane, "repo": in.Repo, "args": raw, "priority": in.Priority, "max_attempts": in.MaxAttempts,
		"run_at": statement.OrNull(in.RunAt), "dedupe": statement.OrNull(in.DedupeKey), "concurrency": statement.OrNull(in.ConcurrencyKey),
		"task": statement.OrNull(in.TaskID), "pinned": statement.OrNull(in.PinnedRoot),
	}, nil
}
