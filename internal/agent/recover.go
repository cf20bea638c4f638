package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"orch/internal/process"
)

// Recover notes the ends that this root's runs came to while nobody looked, and ends what dead shims left. Living runs
// and intents stay for the jobs that come back to them, and so does what can't be judged now.
func (r *Runs) Recover(ctx context.Context) error {
	runs, err := r.look(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs {
		err := r.recoverOne(ctx, run)
		if err != nil && !errors.Is(err, errMassDeath) && !errors.Is(err, process.ErrForeign) {
			failed = append(failed, fmt.Errorf("recover run %s: %w", run.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (r *Runs) recoverOne(ctx context.Context, run Run) error {
	shim, err := process.OpenRun(r.dir(run.ID))
	switch {
	case errors.Is(err, process.ErrNoRun) && run.State == StateIntended:
		return nil
	case errors.Is(err, process.ErrNoRun):
	case err != nil:
		return err
	default:
		st, err := shim.State()
		if err != nil {
			return err
		}
		switch st.Status {
		case process.StatusFinished, process.StatusDead, process.StatusForeign:
		default:
			return nil
		}
	}
	res, err := r.judge(ctx, run, grounds{looked: true})
	if err != nil {
		return err
	}
	if err := r.ledger.NoteEnd(ctx, run.ID, res.End); err != nil {
		return err
	}
	r.logEnd(ctx, "run had ended", run, res)
	return nil
}

// believed is nil when a run whose shim seems dead may be taken for dead, else errMassDeath.
func (r *Runs) believed(ctx context.Context, id uuid.UUID, on grounds) error {
	if on.asked {
		return nil
	}
	if !on.looked {
		if _, err := r.look(ctx); err != nil {
			return err
		}
	}
	if !r.breaker.Allow(id) {
		return errMassDeath
	}
	return nil
}

// look shows the breaker what all open runs of this root seem to be, and gives them.
func (r *Runs) look(ctx context.Context) ([]Run, error) {
	runs, err := r.Open(ctx)
	if err != nil {
		return nil, err
	}
	states := make(map[uuid.UUID]process.State, len(runs))
	for _, run := range runs {
		states[run.ID] = r.seems(run)
	}
	seen := r.breaker.Look(time.Now(), states)
	switch {
	case seen.Opened:
		r.log.ErrorContext(ctx, "too many runs seem dead at once to be believed: nothing is ended for now, look at the disk under the data root",
			slog.Int("dead", seen.Dead), slog.Int("runs", seen.All))
	case seen.Closed:
		r.log.InfoContext(ctx, "runs are believed again", slog.Int("dead", seen.Dead), slog.Int("runs", seen.All))
	}
	return runs, nil
}

// seems is what a run looks like to the breaker.
func (r *Runs) seems(run Run) process.State {
	shim, err := process.OpenRun(r.dir(run.ID))
	switch {
	case errors.Is(err, process.ErrNoRun) && run.State == StateIntended:
		return process.State{Status: process.StatusPending}
	case errors.Is(err, process.ErrNoRun):
		return process.State{Status: process.StatusDead, Interrupted: !r.here(starter(run))}
	case err != nil:
		return process.State{Status: process.StatusUnknown, Doubt: err}
	}
	st, err := shim.State()
	if err != nil {
		return process.State{Status: process.StatusUnknown, Doubt: err}
	}
	return st
}

// MassDeath says how many runs of how many seem dead, while that isn't believed.
func (r *Runs) MassDeath() (dead, all int, open bool) {
	seen, open := r.breaker.Open()
	return seen.Dead, seen.All, open
}
