package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/sight"
	"orch/internal/agent/stray"
	"orch/internal/lifespan"
	"orch/internal/process"
)

// Recover notes the ends that this root's runs came to while nobody looked, and ends what dead shims left. Living runs
// and intents stay for the jobs that come back to them, and so does what can't be judged now. So do the dead ones of jobs that
// somebody has: that is noted by whoever follows them, or by NoteDead when nobody does.
func (r *Runs) Recover(ctx context.Context) error {
	pinning, err := r.Pinning(ctx) // before the look: a job that is claimed meanwhile finds its run by itself
	if err != nil {
		return err
	}
	runs, _, err := r.look(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs {
		err := lifespan.Guard(r.log, "run", func() error { return r.recoverOne(ctx, run, pinning[run.ID]) }) //nolint:contextcheck // a guard takes no context
		if err != nil && !errors.Is(err, ErrMassDeath) && !errors.Is(err, process.ErrForeign) {
			failed = append(failed, fmt.Errorf("recover run %s: %w", run.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (r *Runs) recoverOne(ctx context.Context, run Run, pinning bool) error {
	st, err := r.finder().Look(run)
	if err != nil {
		return err
	}
	switch st.Status {
	case process.StatusFinished, process.StatusForeign:
	case process.StatusDead:
		if pinning && !st.Interrupted {
			return nil
		}
	default:
		return nil
	}
	_, err = r.noteEnd(ctx, run, grounds{looked: true})
	return err
}

// noteEnd judges a run that is over and notes that it had ended.
func (r *Runs) noteEnd(ctx context.Context, run Run, on grounds) (Result, error) {
	res, err := r.judge(ctx, run, on)
	if err != nil {
		return Result{}, err
	}
	if err := r.ledger.NoteEnd(ctx, run.ID, res.End); err != nil {
		return Result{}, err
	}
	r.logEnd(ctx, "run had ended", run, res)
	return res, nil
}

// Seem tells what runs seem to be, of whatever root, after the breaker of mass deaths has had one look at all open runs of
// this one. Runs that aren't in the table are left out. It ends nothing and notes nothing.
func (r *Runs) Seem(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Sight, error) {
	if len(ids) == 0 {
		return map[uuid.UUID]Sight{}, nil
	}
	finder := r.finder()
	sights, err := finder.Rows(ctx, ids) // before the look: what has ended since has a record then
	if err != nil {
		return nil, err
	}
	_, states, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	_, massDeath := r.breaker.Open()
	for id, s := range sights {
		st, known := states[id]
		if !known && !s.Foreign && !s.Finished() {
			st = finder.Of(s.Run)
		}
		s = finder.With(s, st)
		s.MassDeath = massDeath
		sights[id] = s
	}
	return sights, nil
}

// NoteDead notes the end of a run of this root that is dead without a record, once what it left is ended. ErrNotDead when it
// isn't dead for certain or was noted meanwhile, or when its end turns out to be another than a death of its own: then that is
// noted, and is the handler's to deal with. ErrMassDeath when it isn't believed; asked again and again, one look decides
// about one run. ErrElsewhere for a run of another root.
func (r *Runs) NoteDead(ctx context.Context, id uuid.UUID) error {
	run, err := r.Get(ctx, id)
	if err != nil {
		return err
	}
	if run.RootID != r.cfg.RootID {
		return ErrElsewhere
	}
	if run.State == StateFinished || r.finder().Of(run).Status != process.StatusDead {
		return ErrNotDead
	}
	res, err := r.noteEnd(ctx, run, grounds{})
	if err == nil && res.Exit.Why != process.WhyShimDead {
		err = ErrNotDead
	}
	return err
}

// EndStrays ends runs of this root that live although the table says that they have ended.
func (r *Runs) EndStrays(ctx context.Context) error {
	return stray.End(ctx, r.cfg.Pool, r.finder(), r.log)
}

// believed is nil when a run whose shim seems dead may be taken for dead, else ErrMassDeath.
func (r *Runs) believed(ctx context.Context, id uuid.UUID, on grounds) error {
	if on.asked {
		return nil
	}
	if !on.looked {
		if _, _, err := r.look(ctx); err != nil {
			return err
		}
	}
	if !r.breaker.Allow(id) {
		return ErrMassDeath
	}
	return nil
}

// look shows the breaker what all open runs of this root seem to be, and gives them.
func (r *Runs) look(ctx context.Context) ([]Run, map[uuid.UUID]process.State, error) {
	runs, err := r.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	finder := r.finder()
	states := make(map[uuid.UUID]process.State, len(runs))
	for _, run := range runs {
		st := finder.Of(run)
		if states[run.ID] = st; st.Adrift {
			r.tellAdrift(ctx, run, st.PIDs.Shim)
		}
	}
	seen := r.breaker.Look(time.Now(), states)
	switch {
	case seen.Opened:
		r.log.ErrorContext(ctx, "too many runs seem dead at once to be believed: nothing is ended for now, look at the disk under the data root",
			slog.Int("dead", seen.Dead), slog.Int("runs", seen.All))
	case seen.Closed:
		r.log.InfoContext(ctx, "runs are believed again", slog.Int("dead", seen.Dead), slog.Int("runs", seen.All))
	}
	return runs, states, nil
}

// tellAdrift says once of a run that it goes on although its directory is gone.
func (r *Runs) tellAdrift(ctx context.Context, run Run, shim process.Identity) {
	r.adriftMu.Lock()
	defer r.adriftMu.Unlock()
	if r.toldAdrift[run.ID] {
		return
	}
	r.toldAdrift[run.ID] = true
	r.log.WarnContext(ctx, "run directory is lost, the run goes on: what it printed is lost, how it ends isn't",
		slog.String("run_id", run.ID.String()), slog.Int64("task_id", run.TaskID), slog.Int("shim_pid", shim.PID))
}

func (r *Runs) finder() sight.Finder {
	return sight.Finder{Ledger: r.Reader, Dir: r.cfg.Dir, Root: r.cfg.RootID, Self: r.cfg.Self}
}

// MassDeath says how many runs of how many seem dead, while that isn't believed.
func (r *Runs) MassDeath() (dead, all int, open bool) {
	seen, open := r.breaker.Open()
	return seen.Dead, seen.All, open
}
