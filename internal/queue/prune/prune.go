// Package prune deletes jobs that ended long ago, and rows of workers that are long gone, as a job of the queue itself.
//
// Only succeeded and cancelled jobs go: a failed one waits for a person, unless it is of a kind that nobody misses by then. The
// totals of the queue are counters of their own and stay. Each batch is a transaction under the job's lease, with what was deleted
// so far as the job's progress in it: a prune that is stopped, or whose worker dies, goes on where it was.
//
// A worker is gone when it stopped, or was silent, for as long as jobs are kept, and holds nothing. The newest row of each
// data root stays: it says when the root was last seen. A worker that slept for that long writes its row again.
package prune

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// Kind is the kind of the jobs that this package handles.
const Kind = "jobs.prune"

const (
	lane         = "system"
	defaultAfter = 7 * 24 * time.Hour
	defaultBatch = 1000
)

// Insert is the job that prunes. Any number of workers may queue it: one is live at a time, and one runs.
func Insert() queue.Insert {
	return queue.Insert{Kind: Kind, Lane: lane, DedupeKey: Kind, ConcurrencyKey: Kind}
}

// Config is what a Handler needs; zero values get defaults.
type Config struct {
	Queue  *queue.Queue
	After  time.Duration // since the end of a job, or of a worker; default 7 days
	Batch  int           // jobs, or workers, in one transaction; default 1000
	Failed []string      // kinds of which failed jobs go, too
	Logger *slog.Logger  // nil = silent
}

// Handler runs the jobs of Kind.
type Handler struct{ cfg Config }

// New makes a Handler.
func New(cfg Config) *Handler {
	if cfg.After <= 0 {
		cfg.After = defaultAfter
	}
	if cfg.Batch <= 0 {
		cfg.Batch = defaultBatch
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{cfg: cfg}
}

// progress is what the job tells after every batch, also when the first is the last.
type progress struct {
	Deleted int64 `json:"deleted"`
}

// Run deletes batch by batch until one isn't full. A worker that stops gets the job back between two of them.
func (h *Handler) Run(ctx context.Context, l *queue.Lease) error {
	var done progress
	var mark *time.Time
	for ctx.Err() == nil {
		n, err := h.batch(ctx, l, &done, &mark)
		if err != nil {
			return fmt.Errorf("prune jobs: %w", err)
		}
		if n < int64(h.cfg.Batch) {
			h.report(ctx, done)
			return errors.Join(h.failed(ctx, l), h.workers(ctx, l))
		}
		select {
		case <-l.Stopping():
			return queue.ErrStopping
		default:
		}
	}
	return context.Cause(ctx)
}

func (h *Handler) report(ctx context.Context, done progress) {
	if done.Deleted > 0 {
		h.cfg.Logger.InfoContext(ctx, "ended jobs pruned", slog.Int64("deleted", done.Deleted), slog.Duration("after", h.cfg.After))
	}
}

func (h *Handler) batch(ctx context.Context, l *queue.Lease, done *progress, mark **time.Time) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Queue.QueryTimeout())
	defer cancel()
	var last *time.Time
	err = l.Tx(ctx, func(tx pgx.Tx) (err error) {
		if n, last, err = h.delete(ctx, tx, *mark); err != nil {
			return err
		}
		return l.ProgressTx(ctx, tx, progress{Deleted: done.Deleted + n})
	})
	if err != nil {
		return 0, err
	}
	done.Deleted += n
	if last != nil {
		*mark = last
	}
	return n, nil
}

// deleteSQL goes along the index of ended jobs, from where the batch before came to: what that one deleted is still in
// the index, and with a long transaction elsewhere stays there. A row that somebody queues again at this moment is
// left out.
const deleteSQL = `
with gone as (
	delete from jobs where id = any(array(
		select id from jobs
		where state in ('succeeded', 'cancelled') and finished_at >= coalesce(@mark, '-infinity'::timestamptz)
		  and finished_at < now() - make_interval(secs => @after)
		order by finished_at limit @batch
		for update skip locked))
	returning finished_at)
select count(*), max(finished_at) from gone`

func (h *Handler) delete(ctx context.Context, tx pgx.Tx, mark *time.Time) (n int64, last *time.Time, err error) {
	if _, err := tx.Exec(ctx, `set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off`); err != nil {
		return 0, nil, err
	}
	err = tx.QueryRow(ctx, deleteSQL, pgx.NamedArgs{"mark": mark, "after": h.cfg.After.Seconds(), "batch": h.cfg.Batch}).Scan(&n, &last)
	return n, last, err
}

// goneSQL doesn't ask whether the process of a silent worker lives: it holds nothing, and says so again when it does.
const goneSQL = `
delete from workers where id = any(array(
	select id from workers w
	where greatest(heartbeat_at, stopped_at) < now() - make_interval(secs => @after)
	  and not exists (select from jobs where state = 'running' and worker_id = w.id)
	  and exists (select from workers newer where newer.root_id = w.root_id and newer.heartbeat_at > w.heartbeat_at)
	order by heartbeat_at limit @batch
	for update skip locked))`

// workers deletes the rows of workers that are long gone.
func (h *Handler) workers(ctx context.Context, l *queue.Lease) error {
	if _, err := h.all(ctx, l, goneSQL, nil); err != nil {
		return fmt.Errorf("prune workers: %w", err)
	}
	return context.Cause(ctx)
}

// failedSQL goes by the index of failed jobs, of which there are few of a kind.
const failedSQL = `
delete from jobs where id = any(array(
	select id from jobs where state = 'failed' and lane = '` + lane + `' and kind = any(@kinds)
	  and finished_at < now() - make_interval(secs => @after)
	limit @batch
	for update skip locked))`

// failed deletes failed jobs of the kinds that nobody misses.
func (h *Handler) failed(ctx context.Context, l *queue.Lease) error {
	if len(h.cfg.Failed) == 0 {
		return nil
	}
	n, err := h.all(ctx, l, failedSQL, pgx.NamedArgs{"kinds": h.cfg.Failed})
	if n > 0 {
		h.cfg.Logger.WarnContext(ctx, "failed jobs pruned", slog.Int64("deleted", n), slog.Any("kinds", h.cfg.Failed), slog.Duration("after", h.cfg.After))
	}
	if err != nil {
		return fmt.Errorf("prune failed jobs: %w", err)
	}
	return nil
}

// all deletes batch by batch until one isn't full, and answers how many rows that were.
func (h *Handler) all(ctx context.Context, l *queue.Lease, sql string, args pgx.NamedArgs) (deleted int64, err error) {
	with := pgx.NamedArgs{"after": h.cfg.After.Seconds(), "batch": h.cfg.Batch}
	maps.Copy(with, args)
	for n := int64(h.cfg.Batch); n == int64(h.cfg.Batch) && ctx.Err() == nil; deleted += n {
		bounded, cancel := context.WithTimeout(ctx, h.cfg.Queue.QueryTimeout())
		err := l.Tx(bounded, func(tx pgx.Tx) error {
			tag, err := tx.Exec(bounded, sql, with)
			n = tag.RowsAffected()
			return err
		})
		cancel()
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}
