package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/merge/lease"
	"orch/internal/queue"
)

// ErrChanged says that an attempt of another isn't as it was read.
var ErrChanged = errors.New("merge attempt has changed")

// Store owns the table merge_attempts.
type Store struct{ leases *lease.Store }

// NewStore returns a store of attempts that wait in the line of leases, on the same database.
func NewStore(leases *lease.Store) *Store { return &Store{leases: leases} }

// Leases are those that the attempts wait for.
func (s *Store) Leases() *lease.Store { return s.leases }

// Open says what is to be landed where.
type Open struct {
	TaskID               int64
	Repo, Target, Branch string
	Method               string
}

const columns = `id, task_id, (select key from tasks where tasks.id = task_id) as key, job_id, repo, target, branch, step, method, coalesce(base_old, '') as base_old,
	coalesce(head_sha, '') as head_sha, coalesce(land_sha, '') as land_sha, coalesce(land_tree, '') as land_tree,
	coalesce(tip_sha, '') as tip_sha, coalesce(tip_tree, '') as tip_tree, coalesce(definition, '') as definition,
	coalesce(evidence_id, 0) as evidence_id, coalesce(lease_epoch, 0) as lease_epoch, coalesce(group_id, 0) as "group",
	coalesce(group_most, 0) as most, reds, moved, later, refused, coalesce(last_error, '') as last_error,
	offered_at is not null as offered, refreshed_at is not null as refreshed`

// CurrentTx is the open attempt of the task; nil when there is none. While the caller's job runs under its epoch, nobody else
// writes or resolves an intent of its task, but for who leads its group.
func (*Store) CurrentTx(ctx context.Context, tx pgx.Tx, taskID int64) (*Attempt, error) {
	rows, err := tx.Query(ctx, `select `+columns+` from merge_attempts where task_id = $1 and finished_at is null`, taskID)
	if err != nil {
		return nil, fmt.Errorf("look for a merge attempt: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[Attempt])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("look for a merge attempt: %w", err)
	}
	return a, nil
}

// Standing is an attempt in the line of its target, with the arguments of its job.
type Standing struct {
	Attempt
	Args json.RawMessage
}

// LineTx are those that stand in line for the attempt's target beside it, in the order of the line. The caller's transaction has
// the lease's row locked, as whoever changes the line has.
func (s *Store) LineTx(ctx context.Context, tx pgx.Tx, a Attempt, limit int) ([]Standing, error) {
	ids, err := s.leases.LineTx(ctx, tx, a.Repo, a.Target, a.ID, limit)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	rows, err := tx.Query(ctx, `select `+columns+`, (select args from jobs where jobs.id = job_id) as args
		from merge_attempts where id = any($1) order by array_position($1, id)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read the merge line: %w", err)
	}
	line, err := pgx.CollectRows(rows, pgx.RowToStructByName[Standing])
	if err != nil {
		return nil, fmt.Errorf("read the merge line: %w", err)
	}
	return line, nil
}

// JoinTx opens attempts, in the order in which they are claimed, for jobs of a kind that are due for the attempt's target and
// didn't come to look yet: they stand in line as if they had. Jobs that are tied to another root than the caller's are left
// alone, since nobody might come for them; so are tasks that somebody is just changing. The lease's row is locked.
func (*Store) JoinTx(ctx context.Context, tx pgx.Tx, a Attempt, kind string, root uuid.UUID, limit int) error {
	_, err := tx.Exec(ctx, `
		insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, method)
		select t.id, j.id, j.epoch, $1, $2, t.branch, $3
		from jobs j join tasks t on t.id = j.task_id
		where j.kind = $4 and j.state = 'queued' and j.run_at <= clock_timestamp() and j.cancel_requested_at is null
			and (j.pinned_root is null or j.pinned_root = $5)
			and t.repo = $1 and t.base_branch = $2 and t.state = 'active'
			and not exists (select from merge_attempts m where m.task_id = t.id and m.finished_at is null)
		order by j.priority desc, j.run_at, j.id limit $6
		for key share of t skip locked
		on conflict do nothing`, a.Repo, a.Target, a.Method, kind, root, limit)
	if err != nil {
		return fmt.Errorf("join the merge line: %w", err)
	}
	return nil
}

// GroupTx are the open attempts of the attempt's group beside it whose intents are written, the lease's row being locked.
func (*Store) GroupTx(ctx context.Context, tx pgx.Tx, a Attempt) ([]Attempt, error) {
	if a.Group == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `select `+columns+` from merge_attempts where group_id = $1 and id <> $2 and finished_at is null
		and step in ('landing', 'landed') order by id`, a.Group, a.ID)
	if err != nil {
		return nil, fmt.Errorf("read the group of merge attempt %d: %w", a.ID, err)
	}
	mates, err := pgx.CollectRows(rows, pgx.RowToStructByName[Attempt])
	if err != nil {
		return nil, fmt.Errorf("read the group of merge attempt %d: %w", a.ID, err)
	}
	return mates, nil
}

// AbandonedAsTx is the code with which others closed the attempt (AbandonTx), "" when it is open.
func (*Store) AbandonedAsTx(ctx context.Context, tx pgx.Tx, a Attempt) (code string, err error) {
	err = tx.QueryRow(ctx, `select case when step = 'returned' then coalesce(last_error, '') else '' end
		from merge_attempts where id = $1`, a.ID).Scan(&code)
	if err != nil {
		return "", fmt.Errorf("look what became of merge attempt %d: %w", a.ID, err)
	}
	return code, nil
}

// MadeFromTx says whether a landing of the task made the commit land by replaying head.
func (*Store) MadeFromTx(ctx context.Context, tx pgx.Tx, taskID int64, land, head string) (made bool, err error) {
	err = tx.QueryRow(ctx, `select exists (select from merge_attempts
		where task_id = $1 and land_sha = $2 and head_sha = $3)`, taskID, land, head).Scan(&made)
	if err != nil {
		return false, fmt.Errorf("look for the landing that made %s: %w", land, err)
	}
	return made, nil
}

// OpenTx finds the open attempt of the task or begins one, and makes it the job's. Where the work is to land
// is settled by the intent and can't change after it.
func (*Store) OpenTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, o Open) (Attempt, error) {
	rows, err := tx.Query(ctx, `
		insert into merge_attempts as a (task_id, job_id, job_epoch, repo, target, branch, method)
		values (@task, @job, @epoch, @repo, @target, @branch, @method)
		on conflict (task_id) where finished_at is null do update set
			job_id = excluded.job_id, job_epoch = excluded.job_epoch, updated_at = clock_timestamp(),
			repo = case when a.step in ('landing', 'landed') then a.repo else excluded.repo end,
			target = case when a.step in ('landing', 'landed') then a.target else excluded.target end,
			method = case when a.step in ('landing', 'landed') then a.method else excluded.method end
		returning `+columns,
		pgx.NamedArgs{
			"task": o.TaskID, "job": l.Job().ID, "epoch": l.Job().Epoch, "repo": o.Repo, "target": o.Target,
			"branch": o.Branch, "method": o.Method,
		})
	if err != nil {
		return Attempt{}, fmt.Errorf("open merge attempt: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Attempt])
	if err != nil {
		return Attempt{}, fmt.Errorf("open merge attempt: %w", err)
	}
	return a, nil
}

// setWait is its place in the line: when an attempt is looked at again, and why not before.
const setWait = `, last_error = nullif(@error, ''),
	next_look_at = case when @wait > 0 then clock_timestamp() + make_interval(secs => @wait) end`

const set = `step = @step, base_old = nullif(@base, ''), head_sha = nullif(@head, ''),
	land_sha = nullif(@land, ''), land_tree = nullif(@tree, ''), tip_sha = nullif(@tip, ''), tip_tree = nullif(@tip_tree, ''),
	definition = nullif(@definition, ''), evidence_id = nullif(@evidence, 0::bigint), lease_epoch = nullif(@lease, 0::bigint),
	group_id = nullif(@group, 0::bigint), group_most = nullif(@most::integer, 0), reds = @reds::integer,
	moved = @moved::integer, later = @later::integer, refused = @refused::integer, tries = @moved::integer + @later::integer + @refused::integer,
	offered_at = case when @offered::boolean then coalesce(offered_at, clock_timestamp()) end,
	refreshed_at = case when @refreshed::boolean then coalesce(refreshed_at, clock_timestamp()) end,
	finished_at = case when @step in ('finalised', 'parked', 'returned') then clock_timestamp() end,
	updated_at = clock_timestamp()`

func (a Attempt) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": a.ID, "step": string(a.Step), "base": a.BaseOld, "head": a.HeadSHA, "land": a.LandSHA, "tree": a.LandTree,
		"tip": a.TipSHA, "tip_tree": a.TipTree, "definition": a.Definition, "evidence": a.EvidenceID, "lease": a.LeaseEpoch,
		"group": a.Group, "most": a.Most, "reds": a.Reds, "moved": a.Moved, "later": a.Later, "refused": a.Refused,
		"error": a.LastError, "offered": a.Offered, "refreshed": a.Refreshed, "wait": a.Wait.Seconds(),
	}
}

// SaveTx writes the attempt as it is in memory, for the job and epoch that it belongs to.
func SaveTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, a Attempt) error {
	args := a.args()
	args["job"], args["epoch"] = l.Job().ID, l.Job().Epoch
	tag, err := tx.Exec(ctx, `update merge_attempts set `+set+setWait+` where id = @id and job_id = @job and job_epoch = @epoch
		and finished_at is null`, args)
	if err != nil {
		return fmt.Errorf("write merge attempt: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("write merge attempt: %w", lease.ErrLost)
	}
	return nil
}

// SaveMatesTx writes the attempts of others in the group of who holds the lease, whose row the caller's transaction has locked.
// They keep their places in the line: one that backs off, or whose host is away, holds nobody up.
// ErrChanged when one isn't to be had any more: it was ended, or its intent isn't as it was read.
func (*Store) SaveMatesTx(ctx context.Context, tx pgx.Tx, mates []Attempt, intended bool) error {
	for _, a := range mates {
		args := a.args()
		args["intended"], args["repo"], args["target"] = intended, a.Repo, a.Target
		tag, err := tx.Exec(ctx, `update merge_attempts set `+set+` where id = @id and finished_at is null
			and repo = @repo and target = @target and (step in ('landing', 'landed')) = @intended`, args)
		if err != nil {
			return fmt.Errorf("write merge attempt %d of the group: %w", a.ID, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("write merge attempt %d of the group: %w", a.ID, ErrChanged)
		}
	}
	return nil
}

// DisbandTx lets those go who were in the attempt's group, unless their intent is written.
func (*Store) DisbandTx(ctx context.Context, tx pgx.Tx, a Attempt) error {
	_, err := tx.Exec(ctx, `update merge_attempts set group_id = null where group_id = $1 and id <> $1 and finished_at is null
		and step not in ('landing', 'landed')`, a.ID)
	if err != nil {
		return fmt.Errorf("disband the group of merge attempt %d: %w", a.ID, err)
	}
	return nil
}

// LandingStartedTx says whether the landing of the task can't be called off any more. Whoever cancels a task calls
// it after locking the task's row, which the intent locks too.
func (*Store) LandingStartedTx(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error) {
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
