package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

// PauseScope is what a pause holds back.
type PauseScope string

// The scopes of a pause.
const (
	PauseLane PauseScope = "lane"
	PauseRepo PauseScope = "repo"
)

var errBadPause = errors.New("a pause names a lane or a repository")

// Pause holds back the queued jobs of a lane or of a repository until somebody resumes it. What runs goes on, and so
// does a job whose run may be alive: it is claimed and followed to its end.
type Pause struct {
	Scope  PauseScope `db:"scope"`
	Name   string     `db:"name"`
	Reason string     `db:"reason"`
	Actor  string     `db:"actor"`
	At     time.Time  `db:"at"` // by the database's clock, whatever Pause was given
}

// Pause begins a pause, or gives one that has begun another reason. No claim that is sent after its return takes what
// is paused.
func (q *Queue) Pause(ctx context.Context, p Pause) error {
	if (p.Scope != PauseLane && p.Scope != PauseRepo) || p.Name == "" {
		return fmt.Errorf("pause %s %q: %w", p.Scope, p.Name, errBadPause)
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	_, err := q.pool.Exec(ctx, `
insert into pauses (scope, name, reason, actor) values (@scope, @name, @reason, @actor)
on conflict (scope, name) do update set reason = excluded.reason, actor = excluded.actor, at = excluded.at`,
		pgx.NamedArgs{"scope": string(p.Scope), "name": p.Name, "reason": storable(p.Reason), "actor": storable(p.Actor)})
	if err != nil {
		return fmt.Errorf("pause %s %q: %w", p.Scope, p.Name, err)
	}
	return nil
}

// wakeAllSQL wakes every lane that has queued jobs, one index probe each.
const wakeAllSQL = `
with recursive waiting (lane) as (
	(select lane from jobs where state = 'queued' order by lane limit 1)
	union all
	select next.lane from waiting w cross join lateral (
		select lane from jobs where state = 'queued' and lane > w.lane order by lane limit 1) next)
select pg_notify('` + ChannelJobs + `', lane) from waiting where ` + db.NotifyRoom

// Resume ends a pause and wakes the workers. It answers false when there was none.
func (q *Queue) Resume(ctx context.Context, scope PauseScope, name string) (bool, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	resumed := false
	err := db.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `delete from pauses where scope = $1 and name = $2`, string(scope), name)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		resumed = true
		_, err = tx.Exec(ctx, wakeAllSQL)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("resume %s %q: %w", scope, name, err)
	}
	return resumed, nil
}

// Pauses lists what is paused.
func (q *Queue) Pauses(ctx context.Context) ([]Pause, error) {
	pauses, err := collect[Pause](ctx, q, `select scope, name, reason, actor, at from pauses order by scope, name`)
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return pauses, nil
}
