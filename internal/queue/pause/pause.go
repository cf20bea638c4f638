// Package pause holds work back: that of a lane, of a repository or of an agent. It owns the table pauses, which the claims
// of the queue ask for each job (lanes and repositories), and those who are at work or would start an agent ask here.
package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/internal/statement"
)

// Scope is what a pause holds back.
type Scope string

// The scopes of a pause.
const (
	Lane  Scope = "lane"
	Repo  Scope = "repo"
	Agent Scope = "agent"
)

var errBadPause = errors.New("a pause names a lane, a repository or an agent")

// Pause holds something back until somebody resumes it, or until it is over by itself. That of a lane or a repository
// holds back queued jobs: what runs goes on, and so does a job whose run may be alive; it is claimed and followed to its
// end. That of an agent is asked for by those who would start it, with AgentPauses: which agent a job is for shows only
// when it is done, since another may take over.
type Pause struct {
	Scope  Scope     `db:"scope"`
	Name   string    `db:"name"`
	Reason string    `db:"reason"`
	Actor  string    `db:"actor"`
	At     time.Time `db:"at"` // by the database's clock, whatever Pause was given
	// Code says what a run of the agent met, such as quota; it is empty when a person paused.
	Code string `db:"code"`
	// Until is when it is over; nil when somebody has to resume.
	Until *time.Time `db:"until"`
}

func (p Pause) valid() bool {
	return p.Name != "" && (p.Scope == Lane || p.Scope == Repo || p.Scope == Agent)
}

func (p Pause) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"scope": string(p.Scope), "name": p.Name, "reason": statement.Storable(p.Reason), "actor": statement.Storable(p.Actor),
		"code": statement.OrNull(p.Code), "until": p.Until,
	}
}

const (
	pauseSQL = `
insert into pauses (scope, name, reason, actor, code, until) values (@scope, @name, @reason, @actor, @code, @until)
on conflict (scope, name) do update set
	reason = excluded.reason, actor = excluded.actor, at = excluded.at, code = excluded.code, until = excluded.until`

	inForce = `(pauses.until is null or pauses.until > clock_timestamp())`

	// stronger lets a pause by the system replace another: one that is over, and one of the system's own that ends earlier.
	stronger = ` where not ` + inForce + ` or pauses.code is not null and pauses.until is not null
	and (excluded.until is null or excluded.until > pauses.until)`

	selectPauses = `select scope, name, reason, actor, at, coalesce(code, '') as code, until from pauses where ` + inForce
)

// Store keeps what is paused. It is safe for concurrent use.
type Store struct{ on statement.Source }

// NewStore makes a Store on a pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{on: statement.On(pool, 0)} }

// Pause begins a pause by a person, or gives one that has begun another reason. No claim that is sent after its return
// takes what is paused.
func (s *Store) Pause(ctx context.Context, p Pause) error {
	if !p.valid() || p.Code != "" || p.Until != nil {
		return fmt.Errorf("pause %s %q: %w", p.Scope, p.Name, errBadPause)
	}
	ctx, cancel := s.on.Bounded(ctx)
	defer cancel()
	if _, err := s.on.Pool.Exec(ctx, pauseSQL, p.args()); err != nil {
		return fmt.Errorf("pause %s %q: %w", p.Scope, p.Name, err)
	}
	return nil
}

// AgentTx pauses an agent because of what a run of its met, in the transaction that acts on that run. A person's pause
// stays as it is; of two others the one that ends later, or never by itself, holds. It answers whether p does.
func AgentTx(ctx context.Context, tx pgx.Tx, p Pause) (bool, error) {
	if !p.valid() || p.Scope != Agent || p.Code == "" {
		return false, fmt.Errorf("pause %s %q for %q: %w", p.Scope, p.Name, p.Code, errBadPause)
	}
	tag, err := tx.Exec(ctx, pauseSQL+stronger, p.args())
	if err != nil {
		return false, fmt.Errorf("pause %s %q: %w", p.Scope, p.Name, err)
	}
	return tag.RowsAffected() == 1, nil
}

// WaitingForAgent is what a job waits for whose agent is paused. Resume makes such jobs due.
func WaitingForAgent(name string) string { return waitingForAgent + name }

// WaitingForRepo is what a job waits for that found its repository paused when it was at work. It is due, and no claim takes it
// before the pause is over.
func WaitingForRepo(name string) string { return waitingForRepo + name }

const (
	waitingForAgent = "agent_paused:"
	waitingForRepo  = "repo_paused:"
)

// RepoPaused says whether a repository is paused, to a job that is at work on it.
func (s *Store) RepoPaused(ctx context.Context, name string) (bool, error) {
	ctx, cancel := s.on.Bounded(ctx)
	defer cancel()
	var paused bool
	err := s.on.Pool.QueryRow(ctx, `select exists (select from pauses where scope = 'repo' and name = $1 and `+inForce+`)`, name).Scan(&paused)
	if err != nil {
		return false, fmt.Errorf("look whether repository %q is paused: %w", name, err)
	}
	return paused, nil
}

// AgentPauses lists the pauses of these agents that are in force.
func (s *Store) AgentPauses(ctx context.Context, names []string) ([]Pause, error) {
	pauses, err := statement.Collect[Pause](ctx, s.on, selectPauses+` and scope = 'agent' and name = any($1) order by name`, names)
	if err != nil {
		return nil, fmt.Errorf("list pauses of agents: %w", err)
	}
	return pauses, nil
}

// wakeAllSQL wakes every lane that has queued jobs, one index probe each.
const wakeAllSQL = `
with recursive waiting (lane) as (
	(select lane from jobs where state = 'queued' order by lane limit 1)
	union all
	select next.lane from waiting w cross join lateral (
		select lane from jobs where state = 'queued' and lane > w.lane order by lane limit 1) next)
select pg_notify('` + queue.ChannelJobs + `', lane) from waiting where ` + db.NotifyRoom

// dueSQL makes jobs due that wait for any agent: it may be the fallback of the one they name. One that somebody has locked
// is about to move anyway.
const dueSQL = `
update jobs set run_at = clock_timestamp() where id in (
	select id from jobs where state = 'queued' and phase like '` + waitingForAgent + `%' and run_at > clock_timestamp() for update skip locked)`

// afreshSQL lets the waits of a repository's jobs count from now on: they were due, and nobody could take them.
const afreshSQL = `
update jobs set run_at = clock_timestamp() where id in (
	select id from jobs where state = 'queued' and repo = $1 and phase is not null and run_at < clock_timestamp()
	order by run_at, id for update skip locked)`

// Resume ends a pause and wakes the workers. It answers false when there was none.
func (s *Store) Resume(ctx context.Context, scope Scope, name string) (bool, error) {
	ctx, cancel := s.on.Bounded(ctx)
	defer cancel()
	resumed := false
	err := db.InTx(ctx, s.on.Pool, func(tx pgx.Tx) error {
		resumed = false
		err := tx.QueryRow(ctx, `delete from pauses where scope = $1 and name = $2 returning `+inForce, string(scope), name).Scan(&resumed)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil || !resumed {
			return err
		}
		if scope == Agent {
			if _, err := tx.Exec(ctx, dueSQL); err != nil {
				return err
			}
		}
		if scope == Repo {
			if _, err := tx.Exec(ctx, afreshSQL, name); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, wakeAllSQL)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("resume %s %q: %w", scope, name, err)
	}
	return resumed, nil
}

// Pauses lists what is paused.
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) {
	pauses, err := statement.Collect[Pause](ctx, s.on, selectPauses+` order by scope, name`)
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return pauses, nil
}
