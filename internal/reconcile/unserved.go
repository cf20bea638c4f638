package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/task"
)

// codeRepoUnknown is why a task is blocked that no worker would ever begin.
const codeRepoUnknown = "repo_unknown"

const (
	restedFor = time.Minute      // how long a job must have been due; workers come and go
	missedFor = 15 * time.Minute // for how long a worker that went away is taken to come back with what it served
)

// unservedSQL finds jobs of tasks that nobody has begun, and whose repository no worker claims jobs of. What counts for a
// data root is what its living workers say, or else what those said that were there a while ago: a server that is being
// upgraded, or its host started again, is no reason. A landing that any root may go on with counts once its own root is given up,
// or works without serving the repository. Without any worker nothing is known, so nothing is said. It begins with the
// repositories, of which there are few, so that it costs little whatever the queue holds.
const unservedSQL = `
with serving as materialized (
	select root_id, repos, stopped_at is null and heartbeat_at > clock_timestamp() - make_interval(secs => @ttl) as living
	from workers where heartbeat_at > clock_timestamp() - make_interval(secs => @missed)),
unserved as materialized (
	select name from repositories where exists (select from serving where living)
	and not exists (select from serving s where name = any(s.repos)
		and (s.living or not exists (select from serving n where n.root_id = s.root_id and n.living))))
select j.id, t.id as task_id, t.key, t.repo, '' as code, t.updated_at
from unserved cross join (values (@lane::text, @kind::text), (@landing_lane, @landing_kind)) work (lane, kind)
join jobs j on j.lane = work.lane and j.kind = work.kind and j.repo = name join tasks t on t.id = j.task_id
where j.id > @after and (j.kind = @kind or t.root_id is null or exists (select from serving s where s.root_id = t.root_id and s.living)) and j.state = 'queued' and j.pinned_root is null
  and j.run_at < clock_timestamp() - make_interval(secs => @rested)
`

var errMoved = errors.New("the task has moved")

// unserved finds tasks whose jobs would rest in the queue for ever.
func (r *Reconciler) unserved(ctx context.Context, after int64, limit int) ([]subject, error) {
	return r.unservedOn(ctx, r.cfg.Pool, "order by j.id limit @most", after, limit)
}

// block stops one of them and tells people what is missing. It looks again under the locks of job and task, in the order that
// all take them.
func (r *Reconciler) block(ctx context.Context, seen subject) (bool, error) {
	blocked := false
	err := db.InTx(ctx, r.cfg.Pool, func(tx pgx.Tx) error {
		blocked = false
		again, err := r.unservedOn(ctx, tx, "and j.id <= @after + 1 for update of j", seen.ID-1, 1)
		if err != nil || len(again) == 0 {
			return err
		}
		if _, err := queue.CancelTx(ctx, tx, seen.ID); err != nil {
			return err
		}
		t, err := r.cfg.Tasks.ByIDTx(ctx, tx, seen.TaskID)
		if err != nil {
			return err
		}
		moved, err := r.cfg.Tasks.BlockTx(ctx, tx, t.At(), task.Block{
			Code: codeRepoUnknown,
			Reason: fmt.Sprintf("no running worker serves the repository %q: add it to the orch.yaml of a data root that has a worker, "+
				"e.g. with `orch init PATH`, then `orch task retry %s`", seen.Repo, seen.Key),
		})
		if err != nil {
			return err
		}
		if moved.Superseded {
			return errMoved
		}
		blocked = true
		return r.noted("unserved", seen)(ctx, tx)
	})
	if errors.Is(err, errMoved) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("block task %s: %w", seen.Key, err)
	}
	return blocked, nil
}

func (r *Reconciler) unservedOn(ctx context.Context, on querier, tail string, after int64, limit int) ([]subject, error) {
	return query(ctx, on, "tasks that no worker serves", unservedSQL+tail, pgx.NamedArgs{
		"ttl": r.cfg.LeaseTTL.Seconds(), "missed": missedFor.Seconds(), "rested": restedFor.Seconds(),
		"lane": task.LaneAgents, "kind": task.KindStage, "landing_lane": task.LaneMerge, "landing_kind": task.KindMerge,
		"after": after, "most": limit,
	})
}
