package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

const closeTimeout = time.Second

var errClosing = errors.New("closing took too long")

// Beat is what a heartbeat brought back.
type Beat struct {
	Lost      []*Lease // not this worker's any more; marked so
	Cancelled []*Lease // somebody asked to cancel the job
	Orphans   int      // rows of this worker that nothing here knew, released
}

const (
	aliveSQL = `update workers set heartbeat_at = clock_timestamp() where id = @worker`

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
	recoveries = case when started_at < clock_timestamp() - interval '5 minutes' then 0 else recoveries end
from mine where id = job
returning id, epoch`

	// readSQL says what the rows are now, locked or not. It is a statement of its own: it sees what was committed
	// while the one before ran.
	readSQL = `
select id, epoch, cancel_requested_at is not null as cancel_requested from jobs
where state = 'running' and worker_id = @worker`
)

// Beat renews leases in one statement, carries their phase and progress out and cancel requests in, and releases rows
// of this worker that were granted by a claim whose answer was lost. A lease that wasn't marked lost here is either
// renewed, or its row is locked by somebody and still ours. It uses a connection of its own: handlers that occupy the
// whole pool can't stop it.
func (q *Queue) Beat(ctx context.Context, w Worker, leases []*Lease) (Beat, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	h := q.holder(w.ID)
	h.beat.mu.Lock()
	defer h.beat.mu.Unlock()
	conn, err := h.beat.open(ctx, q)
	if err != nil {
		return Beat{}, fmt.Errorf("beat: connect: %w", err)
	}
	batch := newBeatBatch(leases)
	sent := bootTime()
	renewed, rows, err := batch.send(ctx, conn, q, w.ID)
	if err != nil && badData(err) {
		// One job's progress can't be stored. The leases matter more.
		q.cfg.Logger.WarnContext(ctx, "phases and progress dropped", slog.String("error_code", db.Code(err)))
		batch.dropReports()
		renewed, rows, err = batch.send(ctx, conn, q, w.ID)
	}
	if err != nil {
		h.beat.drop(ctx) // whatever state it is in, also one that a failover left read-only
		return Beat{}, fmt.Errorf("beat: %w", err)
	}
	result := batch.judge(renewed, rows, sent)
	seen := make([]grant, 0, len(rows))
	for _, row := range rows {
		seen = append(seen, grant{row.ID, row.Epoch})
	}
	for _, orphan := range h.orphans(seen) {
		if q.releaseOrphan(ctx, conn, w, orphan) {
			result.Orphans++
		}
	}
	return result, nil
}

// releaseOrphan is a unit of its own: the next one is tried whatever becomes of it, and it itself by the next beat.
func (q *Queue) releaseOrphan(ctx context.Context, conn *pgx.Conn, w Worker, g grant) bool {
	args := Release{}.args()
	args["id"], args["epoch"], args["worker"] = g.id, g.epoch, w.ID
	_, err := move(ctx, conn, setReleased, held, args)
	if err != nil {
		if !isNoRows(err) {
			q.cfg.Logger.WarnContext(ctx, "orphan job not released", slog.Int64("job_id", g.id), slog.String("error_code", db.Code(err)))
		}
		return false
	}
	q.cfg.Logger.WarnContext(ctx, "orphan job released", slog.Int64("job_id", g.id), slog.Int("epoch", g.epoch))
	return true
}

// badData says whether the server refused a value (class 22).
func badData(err error) bool { code := pgCode(err); return len(code) == 5 && code[:2] == "22" }

// beatBatch is the leases of one beat as the arrays that the statement takes.
type beatBatch struct {
	leases   []*Lease
	ids      []int64
	epochs   []int
	phases   []*string
	progress []*string
}

func newBeatBatch(leases []*Lease) *beatBatch {
	b := &beatBatch{}
	for _, l := range leases {
		l.mu.Lock()
		skip := l.lost || l.ended != ""
		phase, progress := l.phase, l.progress
		l.mu.Unlock()
		if skip {
			continue
		}
		b.leases = append(b.leases, l)
		b.ids = append(b.ids, l.id)
		b.epochs = append(b.epochs, l.epoch)
		b.phases = append(b.phases, phase)
		b.progress = append(b.progress, text(progress))
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

// send runs the statements of a beat in one round trip, and one transaction.
func (b *beatBatch) send(ctx context.Context, conn *pgx.Conn, q *Queue, worker uuid.UUID) (map[grant]bool, []seenRow, error) {
	args := pgx.NamedArgs{
		"worker": worker, "ids": b.ids, "epochs": b.epochs, "phases": b.phases, "progress": b.progress,
		"ttl": seconds(q.cfg.LeaseTTL),
	}
	renewed := map[grant]bool{}
	var rows []seenRow
	batch := &pgx.Batch{}
	batch.Queue(renewSQL, args).Query(func(r pgx.Rows) error {
		var g grant
		_, err := pgx.ForEachRow(r, []any{&g.id, &g.epoch}, func() error { renewed[g] = true; return nil })
		return err
	})
	batch.Queue(readSQL, args).Query(func(r pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(r, pgx.RowToStructByName[seenRow])
		return err
	})
	batch.Queue(aliveSQL, args)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, err
	}
	return renewed, rows, nil
}

// judge compares the leases with the rows.
func (b *beatBatch) judge(renewed map[grant]bool, rows []seenRow, sent time.Duration) Beat {
	byGrant := make(map[grant]seenRow, len(rows))
	for _, row := range rows {
		byGrant[grant{row.ID, row.Epoch}] = row
	}
	var out Beat
	for _, l := range b.leases {
		row, ours := byGrant[l.grant()]
		switch {
		case !ours:
			if l.markLostUnlessEnding() {
				out.Lost = append(out.Lost, l)
			}
			continue
		case renewed[l.grant()]:
			l.renewedAt(sent)
		}
		if row.CancelRequested {
			out.Cancelled = append(out.Cancelled, l)
		}
	}
	return out
}

// beatConn is the connection of one worker's beats.
type beatConn struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// open returns the connection, a new one when the last is broken. mu is held.
func (b *beatConn) open(ctx context.Context, q *Queue) (*pgx.Conn, error) {
	if b.conn != nil && !b.conn.IsClosed() {
		return b.conn, nil
	}
	conn, err := pgx.ConnectConfig(ctx, q.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	return conn, nil
}

func (b *beatConn) close(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(ctx)
}

// drop closes the connection. mu is held.
func (b *beatConn) drop(ctx context.Context) {
	if b.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeTimeout, errClosing)
	defer cancel()
	_ = b.conn.Close(ctx) // it's gone either way
	b.conn = nil
}
