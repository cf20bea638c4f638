package merge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/forge"
	"orch/internal/merge/lease"
	"orch/internal/queue"
)

// Step is how far a landing has come.
type Step string

// The steps of a landing; the last three end it.
const (
	StepQueued    Step = "queued"
	StepPreparing Step = "preparing"
	StepTesting   Step = "testing"
	StepReady     Step = "ready"
	StepLanding   Step = "landing" // the intent is written: the target may have moved
	StepLanded    Step = "landed"  // the target has moved
	StepFinalised Step = "finalised"
	StepParked    Step = "parked"
	StepReturned  Step = "returned"
)

// intended says that the landing can't be called off any more.
func (s Step) intended() bool { return s == StepLanding || s == StepLanded }

// attempt is one landing of one task.
type attempt struct {
	ID         int64
	TaskID     int64
	Repo       string
	Target     string
	Branch     string
	Step       Step
	Method     string
	BaseOld    string
	HeadSHA    string
	LandSHA    string
	LandTree   string
	Definition string
	EvidenceID int64
	LeaseEpoch int64
	Tries      int
	LastError  string
	Wait       time.Duration `db:"-"` // until the next look; written only
}

// definition is what was settled with the intent: enough to bring it to its end, whatever the catalogue says by now.
func (a attempt) definition(t Task) Definition {
	return Definition{
		Repo:   forge.Repo{Name: a.Repo, Location: t.Location, Base: a.Target},
		Target: a.Target, Method: a.Method, Test: a.Definition, Land: true,
	}
}

// turn is the attempt as it stands in the line of its target.
func (a attempt) turn() lease.Turn {
	return lease.Turn{
		Attempt: a.ID, TaskID: a.TaskID, Repo: a.Repo, Target: a.Target, Branch: a.Branch, Intended: a.Step.intended(),
	}
}

// sameKey says that a test's result for one attempt holds for the other: same commit, same base, same definition.
func (a attempt) sameKey(b attempt) bool {
	return a.LandSHA != "" && a.LandSHA == b.LandSHA && a.BaseOld == b.BaseOld && a.LandTree == b.LandTree &&
		a.Definition == b.Definition
}

const attemptColumns = `id, task_id, repo, target, branch, step, method, coalesce(base_old, '') as base_old,
	coalesce(head_sha, '') as head_sha, coalesce(land_sha, '') as land_sha, coalesce(land_tree, '') as land_tree,
	coalesce(definition, '') as definition, coalesce(evidence_id, 0) as evidence_id,
	coalesce(lease_epoch, 0) as lease_epoch, tries, coalesce(last_error, '') as last_error`

// intentTx finds the attempt of the task whose intent is open; nil when there is none. While the caller's job runs
// under its epoch, nobody else writes or resolves an intent of its task.
func intentTx(ctx context.Context, tx pgx.Tx, taskID int64) (*attempt, error) {
	rows, err := tx.Query(ctx, `select `+attemptColumns+` from merge_attempts
		where task_id = $1 and finished_at is null and step in ('landing', 'landed')`, taskID)
	if err != nil {
		return nil, fmt.Errorf("look for a landing intent: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[attempt])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no intent is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("look for a landing intent: %w", err)
	}
	return a, nil
}

// abandonedAs is the code with which others closed the attempt (AbandonTx), "" when it is open.
func abandonedAs(ctx context.Context, tx pgx.Tx, a attempt) (code string, err error) {
	err = tx.QueryRow(ctx, `select case when step = 'returned' then coalesce(last_error, '') else '' end
		from merge_attempts where id = $1`, a.ID).Scan(&code)
	if err != nil {
		return "", fmt.Errorf("look what became of merge attempt %d: %w", a.ID, err)
	}
	return code, nil
}

// madeFromTx says whether a landing of the task made the commit land by replaying head.
func madeFromTx(ctx context.Context, tx pgx.Tx, taskID int64, land, head string) (made bool, err error) {
	err = tx.QueryRow(ctx, `select exists (select from merge_attempts
		where task_id = $1 and land_sha = $2 and head_sha = $3)`, taskID, land, head).Scan(&made)
	if err != nil {
		return false, fmt.Errorf("look for the landing that made %s: %w", land, err)
	}
	return made, nil
}

// openAttemptTx finds the open attempt of the task or begins one, and makes it the job's. Where the work is to land
// is settled by the intent and can't change after it.
func (s *Store) openAttemptTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, d Definition) (attempt, error) {
	rows, err := tx.Query(ctx, `
		insert into merge_attempts as a (task_id, job_id, job_epoch, repo, target, branch, method)
		values (@task, @job, @epoch, @repo, @target, @branch, @method)
		on conflict (task_id) where finished_at is null do update set
			job_id = excluded.job_id, job_epoch = excluded.job_epoch, updated_at = clock_timestamp(),
			repo = case when a.step in ('landing', 'landed') then a.repo else excluded.repo end,
			target = case when a.step in ('landing', 'landed') then a.target else excluded.target end,
			method = case when a.step in ('landing', 'landed') then a.method else excluded.method end
		returning `+attemptColumns,
		pgx.NamedArgs{
			"task": t.ID, "job": l.Job().ID, "epoch": l.Job().Epoch, "repo": d.Repo.Name, "target": d.Target,
			"branch": t.Branch, "method": d.Method,
		})
	if err != nil {
		return attempt{}, fmt.Errorf("open merge attempt: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[attempt])
	if err != nil {
		return attempt{}, fmt.Errorf("open merge attempt: %w", err)
	}
	return a, nil
}

// saveAttemptTx writes the attempt as it is in memory, for the job and epoch that it belongs to.
func saveAttemptTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, a attempt) error {
	tag, err := tx.Exec(ctx, `
		update merge_attempts set step = @step, base_old = nullif(@base, ''), head_sha = nullif(@head, ''),
			land_sha = nullif(@land, ''), land_tree = nullif(@tree, ''), definition = nullif(@definition, ''),
			evidence_id = nullif(@evidence, 0::bigint), lease_epoch = nullif(@lease, 0::bigint), tries = @tries,
			last_error = nullif(@error, ''),
			next_look_at = case when @wait > 0 then clock_timestamp() + make_interval(secs => @wait) end,
			finished_at = case when @step in ('finalised', 'parked', 'returned') then clock_timestamp() end,
			updated_at = clock_timestamp()
		where id = @id and job_id = @job and job_epoch = @epoch and finished_at is null`,
		pgx.NamedArgs{
			"step": string(a.Step), "base": a.BaseOld, "head": a.HeadSHA, "land": a.LandSHA, "tree": a.LandTree,
			"definition": a.Definition, "evidence": a.EvidenceID, "lease": a.LeaseEpoch, "tries": a.Tries,
			"error": a.LastError, "wait": a.Wait.Seconds(), "id": a.ID, "job": l.Job().ID, "epoch": l.Job().Epoch,
		})
	if err != nil {
		return fmt.Errorf("write merge attempt: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("write merge attempt: %w", lease.ErrLost)
	}
	return nil
}

// LandingStartedTx says whether the landing of the task can't be called off any more. Whoever cancels a task calls
// it after locking the task's row, which the intent locks too.
func (s *Store) LandingStartedTx(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error) {
	var started bool
	err := tx.QueryRow(ctx, `select exists (select from merge_attempts
		where task_id = $1 and finished_at is null and step in ('landing', 'landed'))`, taskID).Scan(&started)
	if err != nil {
		return false, fmt.Errorf("look for a landing intent: %w", err)
	}
	return started, nil
}

// AbandonTx closes the task's open attempt, if it has one, because the task was cancelled or blocked elsewhere, and
// lets the next in line know. An attempt whose job was ended by others holds nobody up without it, too. The lease's row is
// locked before: one that is just deciding to wait behind this attempt is in line when the next is woken, or sees it gone.
func (s *Store) AbandonTx(ctx context.Context, tx pgx.Tx, taskID int64, code string) error {
	var id int64
	var repo, target string
	const open = ` where task_id = $1 and finished_at is null and step not in ('landing', 'landed')`
	err := tx.QueryRow(ctx, `select repo, target from merge_attempts`+open, taskID).Scan(&repo, &target)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("close merge attempt: %w", err)
	}
	if err := s.leases.LockTx(ctx, tx, repo, target); err != nil {
		return err
	}
	err = tx.QueryRow(ctx, `update merge_attempts set step = 'returned', last_error = $2,
			finished_at = clock_timestamp(), updated_at = clock_timestamp(), next_look_at = null`+open+`
		returning id`, taskID, code).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("close merge attempt: %w", err)
	}
	return s.leases.WakeTx(ctx, tx, repo, target, id)
}
