package task

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// CounterLanded is the queue's counter of landings since the database was made.
const CounterLanded = landedCounter

// HoldTx locks the task and says whether it is still active at that place. Until the transaction ends nobody can move or
// cancel it.
func (s *Store) HoldTx(ctx context.Context, tx pgx.Tx, at At) (bool, error) {
	_, current, err := lockAtTx(ctx, tx, at, Active)
	return current, wrap("hold task", err)
}

// LastEvents returns the newest events of a task, oldest of them first.
func (s *Store) LastEvents(ctx context.Context, id int64, limit int) ([]Event, error) {
	rows, err := s.pool.Query(ctx, `select id, task_id, at, actor, kind, reason, data from task_events
		where task_id = $1 order by id desc limit $2`, id, limit)
	if err != nil {
		return nil, fmt.Errorf("list newest events: %w", err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[Event])
	if err != nil {
		return nil, fmt.Errorf("list newest events: %w", err)
	}
	slices.Reverse(events)
	return events, nil
}

// Keys returns the keys of tasks by id.
func (s *Store) Keys(ctx context.Context, ids []int64) (map[int64]string, error) {
	rows, err := s.pool.Query(ctx, `select id, key from tasks where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read keys of tasks: %w", err)
	}
	keys := make(map[int64]string, len(ids))
	var id int64
	var key string
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		keys[id] = key
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read keys of tasks: %w", err)
	}
	return keys, nil
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
