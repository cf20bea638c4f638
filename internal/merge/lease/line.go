package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

// inLine is the part of a query that finds who stands in line for a target ($1, $2), with the time to live in
// seconds as $3. A job that runs without the lease doesn't count: it is just about to look, or it hangs. Nor does
// one that is overdue for longer than the time to live (no one serves it), or an attempt that backs off.
const inLine = `
	from merge_attempts a join jobs j on j.id = a.job_id
	where a.repo = $1 and a.target = $2 and a.finished_at is null
		and j.state = 'queued' and j.run_at > clock_timestamp() - make_interval(secs => $3)
		and (a.last_error is null or a.next_look_at is null or a.next_look_at <= clock_timestamp())`

// aheadTx counts who stands in line before a turn.
func (s *Store) aheadTx(ctx context.Context, tx pgx.Tx, t Turn, priority int) (int, error) {
	var ahead int
	err := tx.QueryRow(ctx, `select count(*)`+inLine+`
		and a.id <> $4 and (a.step not in ('landing', 'landed'), -j.priority, a.id) < ($5::boolean, -$6::integer, $4)`,
		t.Repo, t.Target, s.ttl.Seconds(), t.Attempt, !t.Intended, priority).Scan(&ahead)
	if err != nil {
		return 0, fmt.Errorf("look who is before in the merge line: %w", err)
	}
	return ahead, nil
}

// LineTx are the attempts that stand in line for a target, in its order and without one, at most limit. The caller has locked the
// lease's row.
func (s *Store) LineTx(ctx context.Context, tx pgx.Tx, repo, target string, without int64, limit int) ([]int64, error) {
	rows, err := tx.Query(ctx, `select a.id`+inLine+` and a.id <> $4
		order by a.step not in ('landing', 'landed'), -j.priority, a.id limit $5`, repo, target, s.ttl.Seconds(), without, limit)
	if err != nil {
		return nil, fmt.Errorf("read the merge line: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read the merge line: %w", err)
	}
	return ids, nil
}

// WakeTx makes the first in line (not counting one attempt) due now. Its job's row is skipped when somebody has
// locked it: a waiter that is just deciding to snooze holds that lock while it waits for the lease's row, which the
// caller has locked, and will see the lease free.
func (s *Store) WakeTx(ctx context.Context, tx pgx.Tx, repo, target string, except int64) error {
	var job int64
	err := tx.QueryRow(ctx, `select j.id`+inLine+` and a.id <> $4
		order by a.step not in ('landing', 'landed'), -j.priority, a.id limit 1`,
		repo, target, s.ttl.Seconds(), except).Scan(&job)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the first in the merge line: %w", err)
	}
	var lane string
	err = tx.QueryRow(ctx, `
		update jobs set run_at = clock_timestamp() where id = (
			select id from jobs where id = $1 and state = 'queued' and run_at > clock_timestamp()
			for update skip locked)
		returning lane`, job).Scan(&lane)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wake the first in the merge line: %w", err)
	}
	if _, err := tx.Exec(ctx, `select pg_notify('orch_jobs', $1) where `+db.NotifyRoom, lane); err != nil {
		return fmt.Errorf("wake the merge lane: %w", err)
	}
	return nil
}
