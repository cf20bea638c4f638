package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/lifespan"
	"orch/internal/merge/problem"
	"orch/internal/task"
)

const (
	page        = 100 // subjects of one look
	findTimeout = 30 * time.Second
	mendTimeout = 2 * time.Minute // a repository may be on a slow disk, and its lock be held for a while
)

// Codes of what keeps something from being mended, beside those of the database and of landings.
const (
	codePanicked        = "panicked"
	codePipelineUnknown = "pipeline_unknown" // the configuration doesn't know how the task is done
)

// subject is what one repair is about. ID is what pages are cut by.
type subject struct {
	ID        int64     `db:"id"`
	TaskID    int64     `db:"task_id"`
	Key       string    `db:"key"`
	Repo      string    `db:"repo"`
	Code      string    `db:"code"` // for what the task stopped
	UpdatedAt time.Time `db:"updated_at"`
}

// repair is one thing that may be wrong and what is done about it.
type repair struct {
	name string
	// find returns up to limit subjects behind the one with the id after, in the order of their ids.
	find func(ctx context.Context, after int64, limit int) ([]subject, error)
	// mend repairs one, if it still needs to be; false: nothing was done.
	mend func(ctx context.Context, s subject) (bool, error)

	told  string           // code of the last look, as it was logged
	stuck map[int64]string // codes of the subjects that can't be mended, as they were logged
}

// tried is how far a repair's pass has come.
type tried struct {
	after  int64            // the last subject that was tried
	stuck  map[int64]string // codes of those that can't be mended
	failed error            // of one of them
}

// pass is one repair's part of a tick: every subject is tried, whatever others meet. It says how many can't be mended, and one
// error for all of them.
func (r *Reconciler) pass(ctx context.Context, p *repair) (failing int, failed error) {
	t := tried{stuck: map[int64]string{}}
	for {
		n, err := r.page(ctx, p, &t)
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if c := code(err); !away(err) {
			if err != nil && c != p.told {
				r.log.WarnContext(ctx, "repairs not looked for, tried again", slog.String("repair", p.name), slog.String("code", c), slog.Any("error", db.Public(err)))
			}
			p.told = c
		}
		if err != nil {
			for id, c := range p.stuck { // what was told of those that weren't tried stays told
				if id > t.after {
					t.stuck[id] = c
				}
			}
			t.failed = err
		}
		if err != nil || n < page {
			p.stuck = t.stuck
			return len(t.stuck), t.failed
		}
	}
}

// page looks for some subjects and tries to mend each. An error is that of the look, or says that the database is away: whoever
// is behind would meet the same.
func (r *Reconciler) page(ctx context.Context, p *repair, t *tried) (int, error) {
	var found []subject
	err := r.guard(ctx, p.told, "look of repair "+p.name, findTimeout, func(ctx context.Context) (err error) {
		found, err = p.find(ctx, t.after, page)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, s := range found {
		switch err := r.one(ctx, p, s); {
		case err == nil:
		case ctx.Err() != nil, away(err):
			return 0, err
		default:
			t.stuck[s.ID], t.failed = code(err), err
		}
		t.after = s.ID
		r.cfg.Beat()
	}
	return len(found), nil
}

// away says that the database, not the subject, is what a repair failed for.
func away(err error) bool {
	switch code(err) {
	case db.CodeUnreachable, db.CodeReadOnly, db.CodeNoResource, db.CodeNotifyFull:
		return true
	}
	return false
}

// one mends one subject, and tells of it once.
func (r *Reconciler) one(ctx context.Context, p *repair, s subject) error {
	done := false
	known := p.stuck[s.ID]
	err := r.guard(ctx, known, "repair "+p.name, mendTimeout, func(ctx context.Context) (err error) {
		done, err = p.mend(ctx, s)
		return err
	})
	facts := []any{slog.String("repair", p.name), slog.String("task", s.Key), slog.String("repo", s.Repo)}
	switch {
	case err == nil && done:
		r.log.InfoContext(ctx, "repaired", facts...)
	case err != nil && ctx.Err() == nil && code(err) != known && !away(err):
		r.log.WarnContext(ctx, "repair failed, tried again", append(facts, slog.String("code", code(err)), slog.Any("error", db.Public(err)))...)
	}
	return err
}

// guard bounds a unit of work and catches its panic, whose stack it logs unless the last try ended so too.
func (r *Reconciler) guard(ctx context.Context, known, what string, limit time.Duration, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	log := r.log
	if known == codePanicked {
		log = nil
	}
	return lifespan.Guard(log, what, func() error { return fn(ctx) }) //nolint:contextcheck // a guard takes no context
}

// code names an error.
func code(err error) string {
	if _, panicked := errors.AsType[*lifespan.PanicError](err); panicked {
		return codePanicked
	}
	if step, named := errors.AsType[*problem.StepError](err); named {
		return step.Code
	}
	if errors.Is(err, task.ErrUnknownPipeline) {
		return codePipelineUnknown
	}
	return db.Code(err)
}

// query reads subjects.
func query(ctx context.Context, on querier, what, sql string, args pgx.NamedArgs) ([]subject, error) {
	rows, err := on.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", what, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[subject])
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", what, err)
	}
	return found, nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
