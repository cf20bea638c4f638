package reconcile

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/forge"
	"orch/internal/merge/problem"
	"orch/internal/task"
)

// Names of the repairs that let a landing go on, as the task's events have them.
const (
	intentOpen    = "intent_open"
	landedOutside = "landed_outside"
	parkedCleared = "parked_cleared"
)

const (
	longestRest = 6 * time.Hour
	// maxResumed is how often a parked landing is resumed, while no person does anything with the task.
	maxResumed = 6
	// soonPart is the part of the rest after which an open intent is looked at: it costs a look at the repository only.
	soonPart = 10
)

// restedSQL joins how often a task was resumed by this repair since a person, or whatever isn't orch itself, last did something
// with it, and says since when it has to have stopped: the rest doubles each time.
const restedSQL = `cross join lateral (
	select count(*) as times from task_events e where e.task_id = t.id and e.kind = '` + string(task.EventResumed) + `' and e.data->>'repair' = @repair
		and e.id > coalesce((select max(p.id) from task_events p where p.task_id = t.id and p.actor <> '` + task.System + `'), 0)) resumed
where t.id > @after and t.updated_at <= clock_timestamp() - make_interval(secs => case when resumed.times = 0 then @first::float8
	else least(@rest::float8 * 2 ^ (least(resumed.times, 20) - 1), @longest::float8) end)`

const selectTask = `select t.id, t.id as task_id, t.key, t.repo, coalesce(t.reason_code, '') as code, t.updated_at from tasks t `

// stopped reads tasks that have stopped and rested for long enough.
func (r *Reconciler) stopped(ctx context.Context, name, which string, after int64, limit int, args pgx.NamedArgs) ([]subject, error) {
	args["repair"], args["after"], args["limit"] = name, after, limit
	args["longest"], args["root"] = longestRest.Seconds(), r.cfg.Root
	return query(ctx, r.cfg.Pool, name, selectTask+restedSQL+which+` order by t.id limit @limit`, args)
}

// resume lets the task of a subject go on, unless it was moved since it was seen.
func (r *Reconciler) resume(ctx context.Context, name string, s subject, reason string, lands bool) (bool, error) {
	return r.cfg.Tasks.Resume(ctx, task.Resuming{
		ID: s.ID, UpdatedAt: s.UpdatedAt, Repair: name, Reason: reason, Lands: lands, Within: r.noted(name, s),
	})
}

func (r *Reconciler) jobless(ctx context.Context, after int64, limit int) ([]subject, error) {
	found, err := r.cfg.Tasks.Jobless(ctx, after, limit)
	subjects := make([]subject, 0, len(found))
	for _, f := range found {
		subjects = append(subjects, subject{ID: f.ID, TaskID: f.ID, Key: f.Key, Repo: f.Repo})
	}
	return subjects, err
}

func (r *Reconciler) revive(ctx context.Context, s subject) (bool, error) {
	return r.cfg.Tasks.ReviveOne(ctx, s.ID, r.noted("job_missing", s))
}

// intents finds tasks that have stopped although the intent of their landing is written. What may have landed can't be
// cancelled, so that nobody but a merge job ends it.
func (r *Reconciler) intents(ctx context.Context, after int64, limit int) ([]subject, error) {
	return r.stopped(ctx, intentOpen, ` and t.state in ('blocked', 'waiting') and exists (select from merge_attempts a
		where a.task_id = t.id and a.finished_at is null and a.step in ('landing', 'landed'))`, after, limit,
		pgx.NamedArgs{"first": r.cfg.Rest.Seconds() / soonPart, "rest": r.cfg.Rest.Seconds()})
}

func (r *Reconciler) resolve(ctx context.Context, s subject) (bool, error) {
	return r.resume(ctx, intentOpen, s, "its landing was begun: the repository is looked at for how it ended", true)
}

// ready finds tasks whose branch waits here for a person to land it. One that was resumed in vain rests before it is again.
func (r *Reconciler) ready(ctx context.Context, after int64, limit int) ([]subject, error) {
	return r.stopped(ctx, landedOutside, ` and t.state = 'waiting' and t.waiting_for = '`+task.PersonLands+`'
		and (t.root_id is null or t.root_id = @root)`, after, limit,
		pgx.NamedArgs{"first": 0.0, "rest": r.cfg.Rest.Seconds()})
}

func (r *Reconciler) landed(ctx context.Context, s subject) (bool, error) {
	upstream, err := r.cfg.Landings.Upstream(ctx, s.TaskID)
	if err != nil || !upstream {
		return false, err
	}
	return r.resume(ctx, landedOutside, s, "its work is on the target branch", false)
}

// clearable are the codes of parked landings that a person's or time's doing may have cleared without a word to orch.
func clearable() []string {
	codes := []string{
		problem.Mirror, problem.Fetch, problem.NoBase, problem.Claim, problem.Land, problem.NotLanded, problem.Publish, problem.BaseMoved,
	}
	for _, c := range []forge.Code{
		forge.CodeMissing, forge.CodeNotRepository, forge.CodeNotToplevel, forge.CodeLinkedWorktree, forge.CodeForeign, forge.CodeNoCommits,
		forge.CodeNoBranch, forge.CodeDirty, forge.CodeUnfinished, forge.CodeOverwrites, forge.CodeFilters, forge.CodeMoved, forge.CodeLocked,
	} {
		codes = append(codes, string(c))
	}
	return codes
}

// parked finds landings that were given up for something that may be over, and that nothing has happened to since.
func (r *Reconciler) parked(ctx context.Context, after int64, limit int) ([]subject, error) {
	return r.stopped(ctx, parkedCleared, ` and t.state = 'blocked' and t.reason_code = any(@codes) and resumed.times < @most
		and (t.root_id is null or t.root_id = @root)
		and exists (select from (select step, last_error from merge_attempts where task_id = t.id order by id desc limit 1) newest
			where newest.step = 'parked' and newest.last_error = t.reason_code)`, after, limit,
		pgx.NamedArgs{"first": r.cfg.Rest.Seconds(), "rest": 2 * r.cfg.Rest.Seconds(), "codes": clearable(), "most": maxResumed})
}

func (r *Reconciler) cleared(ctx context.Context, s subject) (bool, error) {
	gone, err := r.cfg.Landings.Cleared(ctx, s.TaskID)
	if err != nil || !gone {
		return false, err
	}
	return r.resume(ctx, parkedCleared, s, "nothing in the repository stands in the way of its landing any more", false)
}

// remainsSQL finds ended tasks with runs that their clean-up hasn't consumed. An open run of another data root than the one which
// cleans up is that root's to end first.
const remainsSQL = `select distinct t.id, t.id as task_id, t.key, t.repo, '' as code, t.updated_at
from runs r join tasks t on t.id = r.task_id
where r.consumed_at is null and t.state in ('done', 'cancelled') and (r.state = 'finished' or r.root_id = t.root_id)
	and not exists (select from jobs j where j.task_id = t.id and (j.state in ('queued', 'running')
		or j.kind = '` + task.KindRetire + `' and j.state in ('succeeded', 'failed') and j.finished_at > clock_timestamp() - make_interval(secs => @rest)))`

// remains finds ended tasks with runs that nobody will use. A clean-up that has just been done isn't repeated at once, should it
// have missed something.
func (r *Reconciler) remains(ctx context.Context, after int64, limit int) ([]subject, error) {
	return query(ctx, r.cfg.Pool, "runs of ended tasks", remainsSQL+` and t.id > @after order by t.id limit @limit`,
		pgx.NamedArgs{"after": after, "limit": limit, "rest": r.cfg.Rest.Seconds()})
}

func (r *Reconciler) tidy(ctx context.Context, s subject) (bool, error) {
	needed := func(ctx context.Context, tx pgx.Tx) (bool, error) {
		found, err := query(ctx, tx, "runs of an ended task", remainsSQL+` and t.id = @id`, pgx.NamedArgs{"id": s.ID, "rest": r.cfg.Rest.Seconds()})
		return len(found) > 0, err
	}
	return r.cfg.Tasks.Tidy(ctx, s.ID, needed, r.noted("runs_left", s))
}
