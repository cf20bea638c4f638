package task

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Filter of List. Zero values don't filter.
type Filter struct {
	States []State
	Repo   string
	Before int64 // cursor: only tasks with a smaller id
	Limit  int   // zero = 100, at most 1000
}

// Get returns the task of that key.
func (s *Store) Get(ctx context.Context, key string) (Task, error) {
	t, err := one(s.pool.Query(ctx, `select `+taskColumns+taskTables+`where t.key = $1`, key))
	if err != nil {
		return Task{}, fmt.Errorf("get task %q: %w", key, err)
	}
	return t, nil
}

// ByID returns the task of that id.
func (s *Store) ByID(ctx context.Context, id int64) (Task, error) {
	t, err := one(s.pool.Query(ctx, `select `+taskColumns+taskTables+`where t.id = $1`, id))
	if err != nil {
		return Task{}, fmt.Errorf("get task %d: %w", id, err)
	}
	return t, nil
}

// List returns tasks, newest first. The id of the last one is the cursor for the next page.
func (s *Store) List(ctx context.Context, f Filter) ([]Task, error) {
	rows, err := s.pool.Query(ctx, `select `+taskColumns+taskTables+`
		where (cardinality(@states::text[]) = 0 or t.state = any(@states)) and (@repo = '' or t.repo = @repo) and (@before::bigint = 0 or t.id < @before)
		order by t.id desc limit @limit`,
		pgx.NamedArgs{"states": names(f.States), "repo": f.Repo, "before": f.Before, "limit": bounded(f.Limit)})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, pgx.RowToStructByName[Task])
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return tasks, nil
}

// Events returns the history of a task, oldest first.
func (s *Store) Events(ctx context.Context, id int64) ([]Event, error) {
	return s.EventsAfter(ctx, id, 0, 0)
}

// EventsAfter returns the events of a task with a greater id than after, oldest first; limit 0 means all.
func (s *Store) EventsAfter(ctx context.Context, id, after int64, limit int) ([]Event, error) {
	rows, err := s.pool.Query(ctx, `select id, task_id, at, actor, kind, reason, data from task_events
		where task_id = $1 and id > $2 order by id limit nullif($3::int, 0)`, id, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[Event])
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return events, nil
}

// Counts of open tasks.
type Counts struct{ Active, Waiting, NeedsYou int64 }

// Counts counts open tasks; its cost grows with those only.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := s.pool.QueryRow(ctx, `select count(*) filter (where state = 'active'), count(*) filter (where state = 'waiting'),
			count(*) filter (where state = 'blocked')
		from tasks where state in ('active', 'waiting', 'blocked')`).Scan(&c.Active, &c.Waiting, &c.NeedsYou)
	if err != nil {
		return Counts{}, fmt.Errorf("count tasks: %w", err)
	}
	return c, nil
}

func bounded(limit int) int {
	if limit <= 0 {
		return defaultLimit
	}
	return min(limit, maxLimit)
}

func names(states []State) []string {
	list := make([]string, 0, len(states))
	for _, state := range states {
		list = append(list, string(state))
	}
	return list
}
