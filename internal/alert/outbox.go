package alert

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
)

// Config is what an Outbox needs.
type Config struct {
	Pool     *pgxpool.Pool
	Channels []string // that alerts go to, such as telegram; none = they are logged only
	// Known are the channels that any orch may have. What waits for one that this orch hasn't is counted, and given up in the end.
	Known  []string
	Logger *slog.Logger // nil = silent
}

// Outbox makes alerts jobs. It is safe for concurrent use.
type Outbox struct {
	pool     *pgxpool.Pool
	channels []string
	absent   []string // known, and not among them
	log      *slog.Logger
}

// NewOutbox returns an outbox.
func NewOutbox(cfg Config) *Outbox {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	o := &Outbox{pool: cfg.Pool, channels: cfg.Channels, log: cfg.Logger}
	for _, channel := range cfg.Known {
		if !slices.Contains(cfg.Channels, channel) {
			o.absent = append(o.absent, channel)
		}
	}
	return o
}

// EnqueueTx tells of a, over each channel, when tx commits. Told before, within its Quiet or while that message waits, it
// isn't told again.
func (o *Outbox) EnqueueTx(ctx context.Context, tx pgx.Tx, a Alert) error {
	_, err := o.enqueueTx(ctx, tx, a)
	return err
}

func (o *Outbox) enqueueTx(ctx context.Context, tx pgx.Tx, a Alert) (told bool, err error) {
	a = a.clean()
	if a.Quiet > 0 {
		first, err := rememberTx(ctx, tx, a)
		if err != nil || !first {
			return false, err
		}
	}
	if len(o.channels) == 0 {
		o.Log(ctx, a)
		return true, nil
	}
	for _, channel := range o.channels {
		if _, err := queue.EnqueueTx(ctx, tx, Insert(channel, a)); err != nil {
			return false, fmt.Errorf("tell of %s: %w", a.Kind, err)
		}
	}
	return true, nil
}

// Enqueue is EnqueueTx in a transaction of its own, for what happened outside of any. It answers whether the alert is
// told now.
func (o *Outbox) Enqueue(ctx context.Context, a Alert) (told bool, err error) {
	err = db.InTx(ctx, o.pool, func(tx pgx.Tx) (err error) {
		told, err = o.enqueueTx(ctx, tx, a)
		return err
	})
	return told && err == nil, err
}

// Log is what becomes of an alert without a channel.
func (o *Outbox) Log(ctx context.Context, a Alert) {
	attrs := []slog.Attr{slog.String("kind", string(a.Kind)), slog.String("what", a.headline())}
	for _, fact := range []struct{ key, value string }{
		{"code", a.Code}, {"task", a.Task}, {"repo", a.Repo}, {"branch", a.Branch}, {"agent", a.Agent}, {"run_id", a.RunID}, {"host", a.Host},
	} {
		if fact.value != "" {
			attrs = append(attrs, slog.String(fact.key, fact.value))
		}
	}
	if a.JobID != 0 {
		attrs = append(attrs, slog.Int64("job_id", a.JobID))
	}
	if a.PID != 0 {
		attrs = append(attrs, slog.Int("pid", a.PID))
	}
	o.log.LogAttrs(ctx, slog.LevelWarn, "needs a person", attrs...)
}

const (
	// rememberSQL is one process's: another one waits for its transaction and then finds it told.
	rememberSQL = `
insert into alerts_told as t (key, at) values (@key, clock_timestamp())
on conflict (key) do update set at = clock_timestamp() where t.at < clock_timestamp() - make_interval(secs => @quiet)`

	// forgetSQL takes away what nobody asks for any more. One that somebody has locked is being told again.
	forgetSQL = `
delete from alerts_told where key in (
	select key from alerts_told where at < clock_timestamp() - make_interval(secs => @after) order by key for update skip locked)`

	forgetAfter = 90 * 24 * time.Hour
)

// rememberTx notes that an alert is told, and answers false when it was within its Quiet.
func rememberTx(ctx context.Context, tx pgx.Tx, a Alert) (bool, error) {
	tag, err := tx.Exec(ctx, rememberSQL, pgx.NamedArgs{"key": string(a.Kind) + ":" + a.Key, "quiet": a.Quiet.Seconds()})
	if err != nil {
		return false, fmt.Errorf("note that %s is told: %w", a.Kind, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	if _, err := tx.Exec(ctx, forgetSQL, pgx.NamedArgs{"after": max(forgetAfter, a.Quiet).Seconds()}); err != nil {
		return false, fmt.Errorf("forget old alerts: %w", err)
	}
	return true, nil
}
