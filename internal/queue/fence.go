package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
)

// fencedTx is the transaction that Lease.Tx hands out: the row is locked in it under the lease's epoch.
type fencedTx struct {
	pgx.Tx
	lease    *Lease
	xid      string
	end      Outcome // what the job becomes when this commits
	onCommit []func(*Job)
}

// fenceSQL locks the row under the lease's epoch and renews it. A transaction that then stays idle, because its
// process was stopped or cut off, must not hold the row for ever: the server ends it.
const fenceSQL = `
update jobs
set lease_expires_at = clock_timestamp() + make_interval(secs => @ttl), heartbeat_at = clock_timestamp()
where id = @id and state = 'running' and worker_id = @worker and epoch = @epoch
returning pg_current_xact_id()::text, set_config('idle_in_transaction_session_timeout', @idle, true)`

// Tx runs fn in a transaction that holds the job's row under this lease's epoch, and renews the lease. Nothing that fn
// wrote is kept unless the lease still held at COMMIT; then the error is ErrLeaseLost. fn should be short, a quarter
// of the lease's TTL at most, and lock the rows of others after this one. An error of COMMIT itself leaves open
// whether fn's writes were kept, except for an end: that is looked up.
func (l *Lease) Tx(ctx context.Context, fn func(pgx.Tx) error) error {
	if err := l.refused(); err != nil {
		return fmt.Errorf("begin for job %d: %w", l.id, err)
	}
	conn, err := l.q.acquire(ctx)
	if err != nil {
		return fmt.Errorf("begin for job %d: %w", l.id, unavailable(err))
	}
	defer conn.Release()
	tx, err := l.fence(ctx, conn)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // an error of fn, or its panic
			ctx, cancel := l.q.detached(ctx)
			defer cancel()
			_ = tx.Rollback(ctx) // the connection is dropped when this fails, which rolls back as well
		}
	}()
	if err := fn(tx); err != nil {
		if l.Lost() {
			return fmt.Errorf("write for job %d: %w: %w", l.id, ErrLeaseLost, err)
		}
		if conn.Conn().IsClosed() { // fn failed because its connection did
			return unavailable(err)
		}
		return err
	}
	if err := l.commits(tx.end); err != nil {
		return fmt.Errorf("commit for job %d: %w", l.id, err)
	}
	done = true
	return l.commit(ctx, conn, tx)
}

// fence begins a transaction with the row locked.
func (l *Lease) fence(ctx context.Context, conn *pgxpool.Conn) (*fencedTx, error) {
	ctx, cancel := l.q.bounded(ctx)
	defer cancel()
	sent := clock.Boot()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin for job %d: %w", l.id, unavailable(err))
	}
	ft := &fencedTx{Tx: tx, lease: l}
	idle := fmt.Sprintf("%dms", max(l.q.cfg.LeaseTTL/4, 5*time.Second).Milliseconds())
	var ignored string
	err = tx.QueryRow(ctx, fenceSQL, l.args(pgx.NamedArgs{"ttl": seconds(l.q.cfg.LeaseTTL), "idle": idle})).
		Scan(&ft.xid, &ignored)
	if err == nil {
		l.holds(sent)
		return ft, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = l.gone(ctx, tx)
	}
	rollback, cancelRollback := l.q.detached(ctx)
	defer cancelRollback()
	_ = tx.Rollback(rollback) // nothing was written
	return nil, fmt.Errorf("fence job %d: %w", l.id, unavailable(err))
}

// holds notes that the row was found running under this lease: an end whose COMMIT had no answer did not happen.
func (l *Lease) holds(sent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = max(l.renewed, sent)
	l.unsure, l.unsureEnd = "", ""
}

// gone is called when the row isn't this lease's any more: because an unanswered COMMIT went through after all, or
// because someone else took it.
func (l *Lease) gone(ctx context.Context, on pgx.Tx) error {
	l.mu.Lock()
	xid, end := l.unsure, l.unsureEnd
	l.mu.Unlock()
	if xid == "" {
		l.MarkLost(ErrLeaseLost)
		return ErrLeaseLost
	}
	var status *string
	err := on.QueryRow(ctx, `select pg_xact_status($1::text::xid8)`, xid).Scan(&status)
	if err != nil {
		if pgCode(err) != pgerrUnknownXID {
			return fmt.Errorf("ask for transaction %s: %w", xid, err)
		}
		status = nil // the server restarted without ever having kept that transaction
	}
	if status != nil && *status == "committed" {
		l.settle(end)
		return ErrEnded
	}
	l.mu.Lock()
	l.unsure, l.unsureEnd = "", ""
	l.mu.Unlock()
	l.MarkLost(ErrLeaseLost)
	return ErrLeaseLost
}

// commits is the moment after which MarkLost comes too late for this transaction.
func (l *Lease) commits(end Outcome) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return ErrLeaseLost
	}
	if end != "" {
		l.committing++
	}
	return nil
}

// answered notes what became of the COMMIT of an end, in the transaction xid.
func (l *Lease) answered(end Outcome, xid string, err error) {
	l.mu.Lock()
	l.committing--
	switch {
	case err == nil:
		l.ended, l.unsure, l.unsureEnd = end, "", "" // under the same lock: no beat may see neither
	case ambiguous(err):
		l.unsure, l.unsureEnd = xid, end
	}
	l.mu.Unlock()
	if err == nil {
		l.q.holder(l.worker.ID).remove(l)
	}
}

// commit ends the transaction, whatever ctx says by now: the answer matters more than a prompt stop.
func (l *Lease) commit(ctx context.Context, conn *pgxpool.Conn, tx *fencedTx) error {
	ctx, cancel := l.q.detached(ctx)
	defer cancel()
	err := tx.Commit(ctx)
	if err == nil {
		l.noteWrites(tx.onCommit)
	}
	if tx.end != "" {
		l.answered(tx.end, tx.xid, err)
	}
	switch {
	case err == nil:
		return nil
	case tx.end != "" && ambiguous(err):
		conn.Release() // a pool of one connection would deadlock here
		return l.resolve(ctx, err)
	default:
		return fmt.Errorf("commit for job %d: %w", l.id, unavailable(err))
	}
}

// noteWrites brings the job in memory up to what was committed.
func (l *Lease) noteWrites(writes []func(*Job)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fn := range writes {
		fn(&l.job)
	}
}

// resolve asks once, on another connection, whether an unanswered COMMIT with an end went through. If that can't be
// had either, the lease stays unsure and its next Tx asks again.
func (l *Lease) resolve(ctx context.Context, cause error) error {
	ctx, cancel := l.q.detached(ctx)
	defer cancel()
	conn, err := l.q.acquire(ctx)
	if err != nil {
		return fmt.Errorf("commit for job %d: %w", l.id, unavailable(cause))
	}
	defer conn.Release()
	tx, err := l.fence(ctx, conn) // waits for the transaction in doubt, which holds the row
	if err == nil {
		_ = tx.Rollback(ctx) // the row is still ours, nothing to write
		return fmt.Errorf("commit for job %d: %w", l.id, unavailable(cause))
	}
	switch {
	case l.Ended():
		return nil
	case errors.Is(err, ErrLeaseLost):
		return fmt.Errorf("commit for job %d: %w", l.id, ErrLeaseLost)
	default:
		return fmt.Errorf("commit for job %d: %w", l.id, unavailable(cause))
	}
}

// settle notes the committed end.
func (l *Lease) settle(end Outcome) {
	l.mu.Lock()
	l.ended, l.unsure, l.unsureEnd = end, "", ""
	l.mu.Unlock()
	l.q.holder(l.worker.ID).remove(l)
}

// refused is the answer that needs no database.
func (l *Lease) refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended != "":
		return ErrEnded
	case l.lost:
		return ErrLeaseLost
	default:
		return nil
	}
}

// Check asks the database whether the lease still holds: nil, ErrLeaseLost, or why it couldn't be asked. It belongs
// before an effect outside the database, which must be conditional all the same.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.refused(); err != nil {
		return fmt.Errorf("check lease of job %d: %w", l.id, err)
	}
	ctx, cancel := l.q.bounded(ctx)
	defer cancel()
	var holds bool
	err := l.q.pool.QueryRow(ctx, `select exists (select from jobs
		where id = @id and state = 'running' and worker_id = @worker and epoch = @epoch)`, l.args(nil)).Scan(&holds)
	switch {
	case err != nil:
		return fmt.Errorf("check lease of job %d: %w", l.id, unavailable(err))
	case !holds:
		l.markLostUnlessEnding()
		return fmt.Errorf("check lease of job %d: %w", l.id, ErrLeaseLost)
	default:
		return nil
	}
}

// args are the arguments of the lease's condition, and more.
func (l *Lease) args(more pgx.NamedArgs) pgx.NamedArgs {
	args := pgx.NamedArgs{"id": l.id, "worker": l.worker.ID, "epoch": l.epoch}
	maps.Copy(args, more)
	return args
}

// acquire takes a connection, within the query timeout.
func (q *Queue) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	return q.pool.Acquire(ctx)
}

// ambiguous says whether a COMMIT with this error may have happened: the server's own refusal says no.
func ambiguous(err error) bool {
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed):
		return false
	default:
		return pgCode(err) == "" || db.Unreachable(err)
	}
}

// pgerrUnknownXID is what pg_xact_status says to an id beyond the newest.
const pgerrUnknownXID = "22023"

func pgCode(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
