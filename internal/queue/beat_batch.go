package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// pinPlansSQL is there because a beat's connection may have been opened when the table was empty, and lives for weeks.
	pinPlansSQL = `
select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

	aliveSQL = `update workers set heartbeat_at = clock_timestamp(), repos = @repos where id = @worker`

	schemaSQL = `
select greatest((select max(version) from schema_migrations),
	(select migrating_to from instance where migrating_until > clock_timestamp()), 0)::int`

	// renewSQL locks in id order, as everyone who locks several rows does, and skips rows that are locked: one long
	// transaction of one job must not stop the beat of all others. That transaction renewed its row itself.
	renewSQL = `
with mine as materialized (
	select id as job, array_position(@ids::bigint[], id) as n from jobs
	where id = any(@ids::bigint[]) and state = 'running' and worker_id = @worker
	  and epoch = (@epochs::int[])[array_position(@ids::bigint[], id)]
	order by id
	for update skip locked)
update jobs set lease_expires_at = clock_timestamp() + make_interval(secs => @ttl), heartbeat_at = clock_timestamp(),
	phase = coalesce((@phases::text[])[n], phase),
	progress = coalesce((@progress::text[])[n]::jsonb, progress),
	recoveries = case when (@healthy::boolean[])[n] or started_at < clock_timestamp() - interval '5 minutes' then 0 else recoveries end
from mine where id = job
returning id, epoch`

	// readSQL says what the rows are now, locked or not. It is a statement of its own: it sees what was committed
	// while the one before ran.
	readSQL = `
select id, epoch, cancel_requested_at is not null as cancel_requested from jobs
where state = 'running' and worker_id = @worker`
)

// badData says whether the server refused a value (class 22).
func badData(err error) bool { code := pgCode(err); return len(code) == 5 && code[:2] == "22" }

// beatBatch is the leases of one beat as the arrays that the statement takes.
type beatBatch struct {
	leases   []*Lease
	ids      []int64
	epochs   []int
	phases   []*string
	progress []*string
	healthy  []bool
}

func newBeatBatch(leases []*Lease) *beatBatch {
	b := &beatBatch{}
	for _, l := range leases {
		l.mu.Lock()
		skip := l.lost || l.ended != ""
		phase, progress, healthy := l.phase, l.progress, l.healthy
		l.mu.Unlock()
		if skip {
			continue
		}
		b.leases = append(b.leases, l)
		b.ids = append(b.ids, l.id)
		b.epochs = append(b.epochs, l.epoch)
		b.phases = append(b.phases, phase)
		b.progress = append(b.progress, text(progress))
		b.healthy = append(b.healthy, healthy)
	}
	return b
}

func text(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	s := string(raw)
	return &s
}

// dropReports forgets what couldn't be stored, in the leases too.
func (b *beatBatch) dropReports() {
	for n, l := range b.leases {
		l.mu.Lock()
		l.phase, l.progress = nil, nil
		l.mu.Unlock()
		b.phases[n], b.progress[n] = nil, nil
	}
}

// seenRow is a running row of the worker.
type seenRow struct {
	ID              int64 `db:"id"`
	Epoch           int   `db:"epoch"`
	CancelRequested bool  `db:"cancel_requested"`
}

// beatAnswer is what the database said to a beat.
type beatAnswer struct {
	renewed map[grant]bool
	rows    []seenRow
	schema  int
	unknown bool // the worker has no row
}

// send runs the statements of a beat as one transaction in one round trip: a process that is stopped after it has sent
// them holds no lock.
func (b *beatBatch) send(ctx context.Context, conn *pgx.Conn, q *Queue, w Worker) (beatAnswer, error) {
	args := pgx.NamedArgs{
		"worker": w.ID, "ids": b.ids, "epochs": b.epochs, "phases": b.phases, "progress": b.progress, "healthy": b.healthy,
		"ttl": seconds(q.cfg.LeaseTTL), "repos": orEmpty(w.Repos),
	}
	answer := beatAnswer{renewed: map[grant]bool{}}
	batch := &pgx.Batch{}
	batch.Queue(pinPlansSQL)
	batch.Queue(renewSQL, args).Query(func(r pgx.Rows) error {
		var g grant
		_, err := pgx.ForEachRow(r, []any{&g.id, &g.epoch}, func() error { answer.renewed[g] = true; return nil })
		return err
	})
	batch.Queue(readSQL, args).Query(func(r pgx.Rows) (err error) {
		answer.rows, err = pgx.CollectRows(r, pgx.RowToStructByName[seenRow])
		return err
	})
	batch.Queue(aliveSQL, args).Exec(func(tag pgconn.CommandTag) error { answer.unknown = tag.RowsAffected() == 0; return nil })
	batch.Queue(schemaSQL).QueryRow(func(r pgx.Row) error { return r.Scan(&answer.schema) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return beatAnswer{}, err
	}
	return answer, nil
}

// judge compares the leases with the rows.
func (b *beatBatch) judge(answer beatAnswer, sent time.Duration) Beat {
	byGrant := make(map[grant]seenRow, len(answer.rows))
	for _, row := range answer.rows {
		byGrant[grant{row.ID, row.Epoch}] = row
	}
	out := Beat{Schema: answer.schema}
	for n, l := range b.leases {
		row, ours := byGrant[l.grant()]
		switch {
		case !ours:
			if l.markLostUnlessEnding() {
				out.Lost = append(out.Lost, l)
			}
			continue
		case answer.renewed[l.grant()]:
			l.beaten(sent, b.healthy[n])
		}
		if row.CancelRequested {
			out.Cancelled = append(out.Cancelled, l)
		}
	}
	return out
}
