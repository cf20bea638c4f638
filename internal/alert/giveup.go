package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
)

const (
	// giveUpAfter is for how long an alert has been due, and nobody has tried its channel, when it is given up.
	giveUpAfter = 24 * time.Hour
	giveUpMost  = 500 // in one transaction
)

const (
	// forsakenSQL finds what is due for that long, of a channel that no process tries.
	forsakenSQL = `select id from unnest(@kinds::text[]) as k (kind) cross join lateral (select id, run_at` + queued + inOrder + `@most) q
where run_at < clock_timestamp() - make_interval(secs => @after)
  and not exists (select from latest where name = k.kind and at > clock_timestamp() - make_interval(secs => @after))
limit @batch`

	// lockSQL leaves out what another process gives up, or sends, at this moment.
	lockSQL = `select id, args from jobs where id = any(@ids) and state = 'queued' order by id for update skip locked`
)

// GiveUp ends the alerts that were enqueued for a channel which this process hasn't, and which nobody has sent for a day: the
// channel was taken out of the configuration. They are told in the log, as they would be without a channel. A process that has
// the channel gives up none of it.
func (o *Outbox) GiveUp(ctx context.Context) error {
	for _, channel := range o.absent {
		total := 0
		for n := giveUpMost; n == giveUpMost; {
			given, err := o.giveUp(ctx, channel)
			if err != nil {
				return fmt.Errorf("give up alerts for %s: %w", channel, err)
			}
			for _, a := range given {
				o.Log(ctx, a)
			}
			n = len(given)
			total += n
		}
		if total > 0 {
			o.log.WarnContext(ctx, "alerts given up: nobody has had their channel for a day", slog.String("channel", channel), slog.Int("alerts", total))
		}
	}
	return nil
}

func (o *Outbox) giveUp(ctx context.Context, channel string) (given []Alert, err error) {
	err = db.InTx(ctx, o.pool, func(tx pgx.Tx) error {
		given = nil
		ids, err := collectIDs(ctx, tx, channel)
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err := tx.Query(ctx, lockSQL, pgx.NamedArgs{"ids": ids})
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			ID   int64
			Args json.RawMessage
		}])
		if err != nil {
			return err
		}
		for _, job := range locked {
			if _, err := queue.CancelTx(ctx, tx, job.ID); err != nil {
				return err
			}
			var a Alert
			_ = json.Unmarshal(job.Args, &a) // what a newer orch has written is told as far as it is known
			given = append(given, a)
		}
		return nil
	})
	return given, err
}

func collectIDs(ctx context.Context, tx pgx.Tx, channel string) ([]int64, error) {
	rows, err := tx.Query(ctx, forsakenSQL, pgx.NamedArgs{
		"kinds": []string{JobKind(channel)}, "lane": lane, "most": maxPending, "after": giveUpAfter.Seconds(), "batch": giveUpMost,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
