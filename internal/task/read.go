package task

import (
	"context"
	"fmt"
	"slices"
	"strconv"

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

const selectByID = `select ` + taskColumns + taskTables + `where t.id = $1`

// ByID returns the task of that id.
func (s *Store) ByID(ctx context.Context, id int64) (Task, error) {
	t, err := one(s.pool.Query(ctx, selectByID, id))
	return t, wrap(fmt.Sprintf("get task %d", id), err)
}

// ByIDTx is ByID within a transaction, which mustn't wait for another connection: all may be held by others that do.
func (*Store) ByIDTx(ctx context.Context, tx pgx.Tx, id int64) (Task, error) {
	t, err := one(tx.Query(ctx, selectByID, id))
	return t, wrap(fmt.Sprintf("get task %d", id), err)
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

const selectEvents = `select id, task_id, at, actor, kind, reason, data from task_events where task_id = $1 `

// Events returns the history of a task, oldest first.
func (s *Store) Events(ctx context.Context, id int64) ([]Event, error) {
	return s.EventsAfter(ctx, id, 0, 0)
}

// EventsAfter returns the events of a task with a greater id than after, oldest first; limit 0 means all.
func (s *Store) EventsAfter(ctx context.Context, id, after int64, limit int) ([]Event, error) {
	return events(s.pool.Query(ctx, selectEvents+`and id > $2 order by id limit nullif($3::int, 0)`, id, after, limit))
}

// EventsOf returns the events of one kind of a task, oldest first.
func (s *Store) EventsOf(ctx context.Context, id int64, kind EventKind) ([]Event, error) {
	return events(s.pool.Query(ctx, selectEvents+`and kind = $2 order by id`, id, string(kind)))
}

// LastEvents returns the newest events of a task, oldest of them first.
func (s *Store) LastEvents(ctx context.Context, id int64, limit int) ([]Event, error) {
	last, err := events(s.pool.Query(ctx, selectEvents+`order by id desc limit $2`, id, limit))
	slices.Reverse(last)
	return last, err
}

func events(rows pgx.Rows, err error) ([]Event, error) {
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Event])
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return list, nil
}

// Name is what people know a task by.
type Name struct{ Key, Repo, Branch string }

// Names tells what people know tasks by. One that there isn't is missing.
func (s *Store) Names(ctx context.Context, ids []int64) (map[int64]Name, error) {
	rows, err := s.pool.Query(ctx, `select id, key, repo, branch from tasks where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read names of tasks: %w", err)
	}
	names := make(map[int64]Name, len(ids))
	var id int64
	var n Name
	_, err = pgx.ForEachRow(rows, []any{&id, &n.Key, &n.Repo, &n.Branch}, func() error {
		names[id] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read names of tasks: %w", err)
	}
	return names, nil
}

// Keys tells the keys of tasks. One that there isn't is missing.
func (s *Store) Keys(ctx context.Context, ids []int64) (map[int64]string, error) {
	names, err := s.Names(ctx, ids)
	keys := make(map[int64]string, len(names))
	for id, n := range names {
		keys[id] = n.Key
	}
	return keys, err
}

// RepoName is the name under which tasks for the repository at location are kept: the one that it has already, else
// want, or want with the first number that makes it free. taken says which names are promised to others.
func (s *Store) RepoName(ctx context.Context, location, want string, taken func(name, location string) bool) (string, error) {
	for n := 1; ; n++ {
		name := want
		if n > 1 {
			name = want + "-" + strconv.Itoa(n)
		}
		var known string
		err := s.pool.QueryRow(ctx, `select coalesce((select location from repositories where name = $1), '')`, name).Scan(&known)
		if err != nil {
			return "", fmt.Errorf("find a name for the repository: %w", err)
		}
		if (known == "" || known == location) && !taken(name, location) {
			return name, nil
		}
	}
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
