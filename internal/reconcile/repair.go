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

// pass is one repair's part of a tick: every subject is tried, whatever others meet. It says how many can't be mended, and one
// error for all of them.
func (r *Reconciler) pass(ctx context.Context, p *repair) (failing int, failed error) {
	stuck := map[int64]string{}
	for after := int64(0); ; {
		found, err := r.look(ctx, p, after)
		for i := 0; err == nil && i < len(found); i++ {
			s := found[i]
			met := r.one(ctx, p, s)
			switch {
			case met == nil:
			case ctx.Err() != nil:
				return 0, nil
			case away(met): // all behind it would meet the same
				err = met
				continue
			default:
				stuck[s.ID], failed = code(met), met
			}
			after = s.ID
			r.cfg.Beat()
		}
		if ctx.Err() != nil {
			return 0, nil
		}
		if c := code(err); c != p.told && !away(err) {
			p.told = c
			if err != nil {
				r.log.WarnContext(ctx, "repairs not looked for, tried again", slog.String("repair", p.name), slog.String("code", c), slog.Any("error", db.Public(err)))
			}
		}
		if err != nil {
			for id, c := range p.stuck { // what was told of those that weren't tried stays told
				if id > after {
					stuck[id] = c
				}
			}
			failed = err
		}
		if err != nil || len(found) < page {
			p.stuck = stuck
			return len(stuck), failed
		}
	}
}

func (r *Reconciler) look(ctx context.Context, p *repair, after int64) (found []subject, err error) {
	err = r.guard(p.told, "look of repair "+p.name, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, findTimeout)
		defer cancel()
		found, err = p.find(ctx, after, page)
		return err
	})
	return found, err
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
	err := r.guard(known, "repair "+p.name, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, mendTimeout)
		defer cancel()
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

// guard catches a panic, and logs its stack unless the last try ended so too.
func (r *Reconciler) guard(known, what string, fn func() error) error {
	log := r.log
	if known == codePanicked {
		log = nil
	}
	return lifespan.Guard(log, what, fn)
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
