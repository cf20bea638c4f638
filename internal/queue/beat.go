package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
)

const closeTimeout = time.Second

var errClosing = errors.New("closing took too long")

// Beat is what a heartbeat brought back.
type Beat struct {
	Lost      []*Lease // not this worker's any more; marked so
	Cancelled []*Lease // somebody asked to cancel the job
	Orphans   int      // rows of this worker that nothing here knew, released

	// Schema is the newest migration that is applied, or that waits for workers of older programs to stop.
	Schema int
}

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
	sent := clock.Boot()
	answer, err := batch.send(ctx, conn, q, w)
	if err != nil && badData(err) {
		// One job's progress can't be stored. The leases matter more.
		q.cfg.Logger.WarnContext(ctx, "phases and progress dropped", slog.String("error_code", db.Code(err)))
		batch.dropReports()
		answer, err = batch.send(ctx, conn, q, w)
	}
	if err != nil {
		h.beat.drop(ctx) // whatever state it is in, also one that a failover left read-only
		return Beat{}, fmt.Errorf("beat: %w", err)
	}
	if answer.unknown { // it was silent for so long that its row was pruned
		if err := register(ctx, conn, w); err != nil {
			q.cfg.Logger.WarnContext(ctx, "worker not registered again", slog.String("error_code", db.Code(err)))
		}
	}
	result := batch.judge(answer, sent)
	seen := make([]grant, 0, len(answer.rows))
	for _, row := range answer.rows {
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
	cfg := q.pool.Config().ConnConfig.Copy()
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = map[string]string{}
	}
	// The server gives up when this side does, so that no beat of the past waits for a lock or holds one.
	cfg.RuntimeParams["statement_timeout"] = strconv.FormatInt(q.cfg.QueryTimeout.Milliseconds(), 10)
	conn, err := pgx.ConnectConfig(ctx, cfg)
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
