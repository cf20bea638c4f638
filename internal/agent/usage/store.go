package usage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/outcome"
)

const (
	today = `(clock_timestamp() at time zone 'UTC')::date`

	// sums is a Usage of rows of runs. A run that lives may still name a cost.
	sums = `count(*)::int as runs, (count(*) filter (where outcome = any(@failed::text[])))::int as failed,
	coalesce(sum(cost_usd), 0)::float8 as cost_usd, (count(*) filter (where state = 'finished' and cost_usd is null))::int as unpriced,
	coalesce(sum(input_tokens), 0)::bigint as input_tokens, coalesce(sum(output_tokens), 0)::bigint as output_tokens,
	coalesce(sum(turns), 0)::bigint as turns`

	counted = ` purpose = 'agent' and outcome is distinct from 'never_started'`

	// spentSQL answers the four usages, by name.
	spentSQL = `
with mine as (select * from runs where task_id = @task and created_at > @since and` + counted + `),
living as (select * from runs where purpose = 'agent' and state <> 'finished')
select 'task' as what, ` + sums + ` from mine
union all
select 'last ' || agent, ` + sums + ` from (select * from mine where state = 'finished' order by finished_at desc, id limit 1) newest group by agent
union all
select 'day', ` + sums + ` from living
union all
select 'agent', ` + sums + ` from living where agent = @agent
union all
select 'day', ` + daySums + ` where day = ` + today + `
union all
select 'agent', ` + daySums + ` where day = ` + today + ` and agent = @agent`

	daySums = `coalesce(sum(runs), 0)::int, coalesce(sum(failed), 0)::int, coalesce(sum(cost_usd), 0)::float8,
	coalesce(sum(unpriced), 0)::int, coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint,
	coalesce(sum(turns), 0)::bigint from agent_days`
)

// failures are the outcomes that say something of the agent, as the days count them.
func failures() []outcome.Outcome {
	return []outcome.Outcome{
		outcome.AgentFailed, outcome.SetupFailed, outcome.Timeout, outcome.Stalled, outcome.Auth, outcome.NotFound, outcome.Killed, outcome.Crashed,
	}
}

// Store reads what was used.
type Store struct{ pool *pgxpool.Pool }

// NewStore returns a Store on the database of pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool} }

// row is a Usage and whose it is.
type row struct {
	Usage

	What string `db:"what"`
}

// Spent reads what the budgets of a task's next run of agent are held against: of the task, the runs since a person last
// allowed more (zero: all), and of the day the runs of all tasks. Spent.Runs and Spent.Retries are left to the caller.
func (s *Store) Spent(ctx context.Context, taskID int64, agent string, since time.Time) (Spent, error) {
	used, err := s.read(ctx, spentSQL, pgx.NamedArgs{"task": taskID, "agent": agent, "since": since})
	if err != nil {
		return Spent{}, fmt.Errorf("read usage for task %d: %w", taskID, err)
	}
	spent := Spent{Task: used["task"], Day: used["day"], Agent: used["agent"]}
	for what, u := range used {
		if name, is := strings.CutPrefix(what, "last "); is {
			spent.Last, spent.LastAgent = u, name
		}
	}
	return spent, nil
}

// Task sums all runs of a task.
func (s *Store) Task(ctx context.Context, taskID int64) (Usage, error) {
	used, err := s.read(ctx, `select '' as what, `+sums+` from runs where task_id = @task and`+counted, pgx.NamedArgs{"task": taskID})
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of task %d: %w", taskID, err)
	}
	return used[""], nil
}

// Today sums the runs that ended today, and those that live, by agent.
func (s *Store) Today(ctx context.Context) (map[string]Usage, error) {
	used, err := s.read(ctx, `
select agent as what, `+sums+` from runs where purpose = 'agent' and state <> 'finished' group by agent
union all
select agent, `+daySums+` where day = `+today+` group by agent`, pgx.NamedArgs{})
	if err != nil {
		return nil, fmt.Errorf("read today's usage: %w", err)
	}
	return used, nil
}

func (s *Store) read(ctx context.Context, sql string, args pgx.NamedArgs) (map[string]Usage, error) {
	args["failed"] = failures()
	rows, err := s.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, err
	}
	used := make(map[string]Usage, len(all))
	for _, r := range all {
		used[r.What] = used[r.What].Plus(r.Usage)
	}
	return used, nil
}
