package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	unservedN = 100              // tasks that one look blocks
)

// unservedSQL finds jobs of tasks that nobody has begun, and whose repository no worker claims jobs of. What counts for a
// data root is what its living workers say, or else what those said that were there a while ago: a server that is being
// upgraded, or its host started again, is no reason. A landing that any root may go on with counts once its own root is given up, or works without serving the repository. Without any worker nothing is known, so nothing is said. It begins with
// the repositories, of which there are few, so that it costs little whatever the queue holds.
const unservedSQL = `
with serving as materialized (
	select root_id, repos, stopped_at is null and heartbeat_at > clock_timestamp() - make_interval(secs => @ttl) as living
	from workers where heartbeat_at > clock_timestamp() - make_interval(secs => @missed)),
unserved as materialized (
	select name from repositories where exists (select from serving where living)
	and not exists (select from serving s where name = any(s.repos)
		and (s.living or not exists (select from serving n where n.root_id = s.root_id and n.living))))
select j.id as job_id, t.id as task_id, t.key, t.repo, t.stage, t.round
from unserved cross join (values (@lane::text, @kind::text), (@landing_lane, @landing_kind)) work (lane, kind)
join jobs j on j.lane = work.lane and j.kind = work.kind and j.repo = name join tasks t on t.id = j.task_id
where (j.kind = @kind or t.root_id is null or exists (select from serving s where s.root_id = t.root_id and s.living)) and j.state = 'queued' and j.pinned_root is null
  and j.run_at < clock_timestamp() - make_interval(secs => @rested)
`

var errMoved = errors.New("the task has moved")

// unserved is one of them.
type unserved struct {
	JobID  int64  `db:"job_id"`
	TaskID int64  `db:"task_id"`
	Key    string `db:"key"`
	Repo   string `db:"repo"`
	Stage  string `db:"stage"`
	Round  int    `db:"round"`
}

// blockUnserved stops tasks whose jobs would rest in the queue for ever, and tells people what is missing.
func (s *system) blockUnserved(ctx context.Context) error {
	found, err := s.unserved(ctx, s.pool, "order by j.id limit @most", nil)
	if err != nil {
		return err
	}
	var failed []error
	for _, u := range found {
		failed = append(failed, s.blockOne(ctx, u))
	}
	return errors.Join(failed...)
}

// blockOne looks again under the locks of job and task, in the order that all take them.
func (s *system) blockOne(ctx context.Context, seen unserved) error {
	blocked := false
	err := db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		again, err := s.unserved(ctx, tx, "and j.id = @job for update of j", &seen.JobID)
		if err != nil || len(again) == 0 {
			return err
		}
		u := again[0]
		if _, err := queue.CancelTx(ctx, tx, u.JobID); err != nil {
			return err
		}
		moved, err := s.tasks.BlockTx(ctx, tx, task.At{TaskID: u.TaskID, Stage: u.Stage, Round: u.Round}, task.Block{
			Code: codeRepoUnknown,
			Reason: fmt.Sprintf("no running worker serves the repository %q: add it to the orch.yaml of a data root that has a worker, "+
				"e.g. with `orch init PATH`, then `orch task retry %s`", u.Repo, u.Key),
		})
		if err == nil && moved.Superseded {
			err = errMoved
		}
		blocked = err == nil
		return err
	})
	if err != nil && !errors.Is(err, errMoved) {
		return fmt.Errorf("block task %s: %w", seen.Key, err)
	}
	if blocked {
		s.log.WarnContext(ctx, "task blocked, no worker serves its repository", slog.String("task", seen.Key), slog.String("repo", seen.Repo))
	}
	return nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *system) unserved(ctx context.Context, q querier, tail string, job *int64) ([]unserved, error) {
	rows, err := q.Query(ctx, unservedSQL+tail, pgx.NamedArgs{
		"ttl": s.queue.LeaseTTL().Seconds(), "missed": missedFor.Seconds(), "rested": restedFor.Seconds(),
		"lane": task.LaneAgents, "kind": task.KindStage, "landing_lane": task.LaneMerge, "landing_kind": task.KindMerge,
		"most": unservedN, "job": job,
	})
	if err != nil {
		return nil, fmt.Errorf("look for tasks that no worker serves: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[unserved])
	if err != nil {
		return nil, fmt.Errorf("look for tasks that no worker serves: %w", err)
	}
	return found, nil
}
