package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/task/flow"
)

// Add is a new task.
type Add struct {
	Repo       string // name: part of the key, of branch names and of paths
	Location   string // path or URL of the repository
	Title      string
	Body       string
	Source     string // forge, api or cli
	Actor      string // who adds it; empty = Source
	BaseBranch string
	Pipeline   string
	Priority   int
	MaxCostUSD *float64 // what its runs may cost together; nil = what orch.yaml says
	Land       bool
	Overrides  any // kept as JSON, read by the Catalog
	// Root is the data root that alone can do it, where it is known beforehand; zero = the one that begins it.
	Root uuid.UUID
}

const (
	maxTitle = 300 // bytes, as the API says
	maxBody  = 1 << 20

	minCostUSD, maxCostUSD = 0.01, 1e6
)

// ErrRepositoryMoved says that a repository of that name is at another place, and that tasks of it are still open.
var ErrRepositoryMoved = errors.New("a repository of this name is at another location and has open tasks")

// Create adds a task and enqueues the job of its first stage, both or neither.
func (s *Store) Create(ctx context.Context, add Add) (Task, error) {
	if err := add.check(); err != nil {
		return Task{}, fmt.Errorf("create task: %w", err)
	}
	overrides, err := encodeOverrides(add.Overrides)
	if err != nil {
		return Task{}, fmt.Errorf("create task: %w", err)
	}
	pipeline, err := s.Pipeline(ctx, Task{
		Repo: add.Repo, Location: add.Location, Pipeline: add.Pipeline, Overrides: overrides, Land: add.Land, Source: add.Source,
	})
	if err != nil {
		return Task{}, fmt.Errorf("create task: %w", err)
	}
	if err := pipeline.Validate(s.cfg.CheckPrompt); err != nil {
		return Task{}, fmt.Errorf("create task: %w", err)
	}
	var created Task
	err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		created, err = s.createTx(ctx, tx, add, pipeline.Stages[0], overrides)
		return err
	})
	if err != nil {
		return Task{}, fmt.Errorf("create task: %w", err)
	}
	s.log.InfoContext(ctx, "task created", slog.String("task", created.Key), slog.String("repo", created.Repo),
		slog.String("pipeline", created.Pipeline), slog.String("source", created.Source))
	return created, nil
}

func (s *Store) createTx(ctx context.Context, tx pgx.Tx, add Add, first flow.Stage, overrides json.RawMessage) (Task, error) {
	number, err := nextNumberTx(ctx, tx, add.Repo, add.Location)
	if err != nil {
		return Task{}, err
	}
	key := fmt.Sprintf("%s-%d", add.Repo, number)
	var id int64
	err = tx.QueryRow(ctx, `insert into tasks (key, repo, title, body, source, branch, base_branch, pipeline, stage, priority, max_cost_usd, land, overrides, root_id)
		values (@key, @repo, @title, @body, @source, @branch, @base, @pipeline, @stage, @priority, @cost::float8, @land, @overrides, @root)
		returning id`,
		pgx.NamedArgs{
			"key": key, "repo": add.Repo, "title": strings.TrimSpace(add.Title), "body": add.Body, "source": add.Source,
			"branch": "orch/" + key, "base": add.BaseBranch, "pipeline": add.Pipeline, "stage": first.Name,
			"priority": add.Priority, "cost": add.MaxCostUSD, "land": add.Land, "overrides": overrides, "root": uuid.NullUUID{UUID: add.Root, Valid: add.Root != uuid.Nil},
		}).Scan(&id)
	if err != nil {
		return Task{}, fmt.Errorf("insert task: %w", err)
	}
	created, err := lockTx(ctx, tx, id)
	if err != nil {
		return Task{}, err
	}
	actor := add.Actor
	if actor == "" {
		actor = add.Source
	}
	if err := appendEventTx(ctx, tx, id, actor, EventCreated, "", facts{"stage": first.Name, "round": 1}); err != nil {
		return Task{}, err
	}
	err = s.EnqueueTx(ctx, tx, created, first)
	return created, err
}

// nextNumberTx counts keys up per repository; the lock on its row makes them gapless. A repository may move only while
// no task of it is open: an open task would land somewhere else than it was made for.
func nextNumberTx(ctx context.Context, tx pgx.Tx, repo, location string) (int, error) {
	_, err := tx.Exec(ctx, `insert into repositories (name, location) values ($1, $2) on conflict (name) do nothing`, repo, location)
	if err != nil {
		return 0, fmt.Errorf("insert repository: %w", err)
	}
	var known string
	err = tx.QueryRow(ctx, `select location from repositories where name = $1 for update`, repo).Scan(&known)
	if err != nil {
		return 0, fmt.Errorf("lock repository: %w", err)
	}
	if known != location {
		var open bool
		err = tx.QueryRow(ctx, `select exists (select from tasks where repo = $1 and state in ('active', 'waiting', 'blocked'))`, repo).Scan(&open)
		if err != nil {
			return 0, fmt.Errorf("look for open tasks: %w", err)
		}
		if open {
			return 0, fmt.Errorf("repository %s: %w", repo, ErrRepositoryMoved)
		}
	}
	var number int
	err = tx.QueryRow(ctx, `update repositories set last_number = last_number + 1, location = $2 where name = $1 returning last_number`,
		repo, location).Scan(&number)
	if err != nil {
		return 0, fmt.Errorf("count task: %w", err)
	}
	return number, nil
}

func (a Add) check() error {
	name := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	title := strings.TrimSpace(a.Title)
	switch {
	case !name.MatchString(a.Repo) || strings.Contains(a.Repo, "..") || strings.HasSuffix(a.Repo, "."):
		return &InvalidError{"repo", "must be a name of letters, digits, '-', '_' and single '.'"}
	case a.Location == "" || !storable(a.Location):
		return &InvalidError{"location", "must be a path or URL"}
	case strings.ContainsFunc(title, unicode.IsControl):
		return &InvalidError{"title", "must be one line without control characters"}
	case title == "" || len(title) > maxTitle || !utf8.ValidString(title):
		return &InvalidError{"title", fmt.Sprintf("must be UTF-8 text of 1 to %d bytes", maxTitle)}
	case len(a.Body) > maxBody || !storable(a.Body):
		return &InvalidError{"body", fmt.Sprintf("must be text of at most %d bytes", maxBody)}
	case a.Source != "forge" && a.Source != "api" && a.Source != "cli":
		return &InvalidError{"source", "must be forge, api or cli"}
	case a.BaseBranch == "" || !storable(a.BaseBranch):
		return &InvalidError{"base_branch", "must be the name of a branch"}
	case a.Priority < -100 || a.Priority > 100:
		return &InvalidError{"priority", "must be from -100 to 100"}
	case a.MaxCostUSD != nil && (*a.MaxCostUSD < minCostUSD || !(*a.MaxCostUSD <= maxCostUSD)):
		return &InvalidError{"max_cost_usd", "must be from 0.01 to 1000000"}
	}
	return nil
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func encodeOverrides(overrides any) (json.RawMessage, error) {
	if overrides == nil {
		return json.RawMessage(`{}`), nil
	}
	encoded, err := json.Marshal(overrides)
	if err != nil {
		return nil, fmt.Errorf("encode overrides: %w", err)
	}
	return encoded, nil
}
