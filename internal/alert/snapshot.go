package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/tally"
)

// Status says how the channels do.
type Status string

// The statuses.
const (
	StatusOK      Status = "ok"
	StatusOff     Status = "off"     // there is no channel
	StatusFailing Status = "failing" // the last message didn't get through
)

// ChannelNone is the channel's name where there is none.
const ChannelNone = "none"

// Snapshot is what GET /queue tells of alerts.
type Snapshot struct {
	Channel   string // names joined by a comma, or ChannelNone
	Status    Status
	Pending   int64  // alerts that aren't told yet, those of a channel that this process hasn't too
	LastError string // a code, while messages don't get through; else ""
}

// lastOf is the row of latest that says how a channel's last message went.
func lastOf(channel string) string { return JobKind(channel) }

// last is the data of that row.
type last struct {
	Error string `json:"error,omitempty"`
}

const (
	// maxPending bounds what is counted: one probe of an index for each.
	maxPending = 10_000

	// queued are the jobs of kind k.kind in the order of the index jobs_queued, so that no statistics lead elsewhere.
	queued  = ` from jobs where state = 'queued' and lane = @lane and kind = k.kind`
	inOrder = ` order by lane, kind, coalesce(pinned_root, '00000000-0000-0000-0000-000000000000'), (concurrency_key is not null), repo,
		priority desc, run_at, id limit `

	// pendingSQL counts the one that runs by its key, which is its own.
	pendingSQL = `
select coalesce(sum(waits.n + runs.n), 0)::bigint from unnest(@all::text[]) as k (kind)
cross join lateral (select count(*) as n from (select` + queued + inOrder + `@most) q) waits
cross join lateral (select count(*) as n from jobs where concurrency_key = k.kind and worker_id is not null) runs`

	// dueSQL looks at the first that is due: alerts have no priorities, so it is the oldest.
	dueSQL = `
select coalesce(max(extract(epoch from clock_timestamp() - due.run_at)), 0)::float8 from unnest(@kinds::text[]) as k (kind)
cross join lateral (select run_at` + queued + ` and run_at < clock_timestamp()` + inOrder + `1) due`

	triedSQL = `select extract(epoch from clock_timestamp() - max(at))::float8 from latest where name = any(@kinds::text[])`

	lastSQL = `select coalesce((select data from latest where name = any(@kinds::text[]) and data ? 'error' order by at desc limit 1), '{}')`
)

func (o *Outbox) args() pgx.NamedArgs {
	kinds := jobKinds(o.channels)
	return pgx.NamedArgs{"lane": lane, "kinds": kinds, "all": append(jobKinds(o.absent), kinds...), "most": maxPending}
}

func jobKinds(channels []string) []string {
	kinds := make([]string, len(channels))
	for i, channel := range channels {
		kinds[i] = JobKind(channel)
	}
	return kinds
}

// Snapshot says how alerts do: cheap enough for each build of GET /queue.
func (o *Outbox) Snapshot(ctx context.Context) (Snapshot, error) {
	s := Snapshot{Channel: strings.Join(o.channels, ","), Status: StatusOK}
	if len(o.channels) == 0 {
		s = Snapshot{Channel: ChannelNone, Status: StatusOff}
	}
	var raw []byte
	err := o.pool.QueryRow(ctx, `select (`+pendingSQL+`), (`+lastSQL+`)`, o.args()).Scan(&s.Pending, &raw)
	if err != nil {
		return Snapshot{}, fmt.Errorf("look at alerts: %w", err)
	}
	var l last
	if err := json.Unmarshal(raw, &l); err != nil {
		return Snapshot{}, fmt.Errorf("look at alerts: %w", err)
	}
	if l.Error != "" {
		s.Status, s.LastError = StatusFailing, l.Error
	}
	return s, nil
}

// Health is what a Watch looks at, by the database's clock.
type Health struct {
	Overdue time.Duration // for how long the oldest due alert has waited; zero when none is due
	Tried   time.Duration // since a message was last given to a channel, whether or not it got through
}

// never is for how long nothing was tried where nothing ever was.
const never = 100 * 365 * 24 * time.Hour

// Probe asks the database how alerts get along. Its error says how the database does.
func (o *Outbox) Probe(ctx context.Context) (Health, error) {
	var overdue float64
	var tried *float64
	if err := o.pool.QueryRow(ctx, `select (`+dueSQL+`), (`+triedSQL+`)`, o.args()).Scan(&overdue, &tried); err != nil {
		return Health{}, fmt.Errorf("look at due alerts: %w", err)
	}
	h := Health{Overdue: time.Duration(overdue * float64(time.Second)), Tried: never}
	if tried != nil {
		h.Tried = time.Duration(*tried * float64(time.Second))
	}
	return h, nil
}

// NoteSent says how the channel's last message went: code is why it didn't get through, "" when it did. It is written in a
// transaction of the job's own, so a late sender changes nothing.
func NoteSent(ctx context.Context, l *queue.Lease, channel, code string) error {
	return l.Tx(ctx, func(tx pgx.Tx) error { return tally.SetLatestTx(ctx, tx, lastOf(channel), last{Error: code}) })
}
