package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/agent"
	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/tally"
)

// act does what a verdict says; what takes time it gives back, for later.
func (r *Reaper) act(ctx context.Context, f found, v Verdict) (later func() error, err error) {
	switch {
	case v.Do == Release:
		return nil, r.take(ctx, f, v)
	case v.Do == End:
		return func() error { return r.end(ctx, f, v) }, nil
	case v.Do == Spend && f.life == RunNone:
		return nil, r.take(ctx, f, v)
	case v.Reason == ReasonCeiling:
		return func() error { return r.giveUp(ctx, f, v) }, nil
	default:
		return func() error { return r.bury(ctx, f, v) }, nil
	}
}

// end ends a living run that is past its ceiling, with its group. Its handler finds it timed out.
func (r *Reaper) end(ctx context.Context, f found, v Verdict) error {
	r.log.WarnContext(ctx, "run ended, it is past its ceiling", attrs(r.describe(ctx, f, v))...)
	return r.cfg.Runs.End(ctx, *f.RunID, process.WhyCeiling)
}

// giveUp spends the attempt of a run that can't be judged and is past its ceiling. If it can be ended all the same, its handler
// finds that.
func (r *Reaper) giveUp(ctx context.Context, f found, v Verdict) error {
	err := r.cfg.Runs.End(ctx, *f.RunID, process.WhyCeiling)
	if err == nil || db.Unreachable(err) || ctx.Err() != nil {
		return err
	}
	return r.take(ctx, f, v)
}

// bury ends what a dead run left, notes its end, and spends the attempt. Too many that seem dead at once are for later, and
// what came to another end is for its handler.
func (r *Reaper) bury(ctx context.Context, f found, v Verdict) error {
	err := r.cfg.Runs.NoteDead(ctx, *f.RunID)
	if errors.Is(err, agent.ErrMassDeath) || errors.Is(err, agent.ErrNotDead) {
		return nil
	}
	if err != nil {
		return err
	}
	f.life = RunFinished
	return r.take(ctx, f, v)
}

// take takes a job from its worker, with all that belongs to it in one transaction.
func (r *Reaper) take(ctx context.Context, f found, v Verdict) error {
	reaped := r.describe(ctx, f, v)
	// A run that lives, or may, is gone on with.
	given := v.Do == Release && (f.life == RunAlive || f.life == RunUnknown)
	after, err := r.cfg.Queue.Take(ctx, f.Seen, queue.Taking{
		Reason: string(v.Reason), Spend: v.Do == Spend, Code: code(v), Message: message(f, v),
		Recovery:     v.Do == Release && (f.life == RunNone || f.life == RunFinished),
		StillExpired: v.Reason == ReasonExpired && f.Expired, StillPhase: v.Reason == ReasonRunFinished,
		Within: func(ctx context.Context, tx pgx.Tx, before, after queue.Job) error {
			reaped.Outcome = string(after.State)
			if v.Do == Spend {
				if err := r.consumeTx(ctx, tx, f); err != nil {
					return err
				}
			}
			if given {
				return nil
			}
			return r.tellTx(ctx, tx, reaped)
		},
	})
	if err != nil || after == nil {
		return err
	}
	if r.cfg.Counted != nil {
		r.cfg.Counted(1)
	}
	if given {
		r.log.WarnContext(ctx, "job taken from its worker, its run is gone on with", attrs(reaped)...)
		return nil
	}
	r.log.WarnContext(ctx, "job reaped", attrs(reaped)...)
	return nil
}

// consumeTx uses up the run of an attempt that is spent: the next handler must not spend another one on the same end.
// One that can't be judged is given up as a whole; should it live, it is ended as a stray.
func (r *Reaper) consumeTx(ctx context.Context, tx pgx.Tx, f found) error {
	switch {
	case f.RunID == nil:
		return nil
	case f.life == RunFinished:
		err := ledger.ConsumeTx(ctx, tx, *f.RunID)
		if errors.Is(err, ledger.ErrConsumed) {
			return nil
		}
		return err
	case f.TaskID == nil:
		return nil
	default:
		return ledger.GiveUpTx(ctx, tx, *f.TaskID, r.cfg.RootID)
	}
}

// tellTx counts and tells of reaps in their transaction. The rows that all reaps share are the last to be locked.
func (r *Reaper) tellTx(ctx context.Context, tx pgx.Tx, all ...Reaped) error {
	if r.cfg.OnReapTx != nil {
		for _, reaped := range all {
			if err := r.cfg.OnReapTx(ctx, tx, reaped); err != nil {
				return fmt.Errorf("tell of reaped job: %w", err)
			}
		}
	}
	if err := tally.AddCounterTx(ctx, tx, CounterReaped, int64(len(all))); err != nil {
		return err
	}
	last := all[len(all)-1]
	return tally.SetLatestTx(ctx, tx, LatestReaped, latest{
		JobID: last.JobID, RunID: last.RunID, Kind: last.Kind, Agent: orNil(last.Agent), Outcome: last.Outcome, Reason: last.Reason,
	})
}

// latest is what GET /queue shows of the last one.
type latest struct {
	JobID   int64      `json:"job_id"`
	RunID   *uuid.UUID `json:"run_id"`
	Kind    string     `json:"kind"`
	Agent   *string    `json:"agent"`
	Outcome string     `json:"outcome"`
	Reason  string     `json:"reason"`
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// describe says whose job it is.
func (r *Reaper) describe(ctx context.Context, f found, v Verdict) Reaped {
	reaped := reapedOf(f, v)
	if f.TaskID != nil {
		r.named(ctx, []int64{*f.TaskID}, func(subjects map[int64]Subject) { reaped.name(subjects[*f.TaskID]) })
	}
	return reaped
}

// named asks what people know tasks by. That it can't be said keeps nothing.
func (r *Reaper) named(ctx context.Context, tasks []int64, with func(map[int64]Subject)) {
	if r.cfg.Describe == nil || len(tasks) == 0 {
		return
	}
	if subjects, err := r.cfg.Describe(ctx, tasks); err == nil {
		with(subjects)
	}
}

// name adds what the task is known by, if that is.
func (p *Reaped) name(s Subject) {
	if s != (Subject{}) {
		p.Task, p.Repo, p.Branch = s.Task, s.Repo, s.Branch
	}
}

func reapedOf(f found, v Verdict) Reaped {
	reaped := Reaped{
		JobID: f.ID, Epoch: f.Epoch, Kind: f.Kind, Repo: f.Repo, Agent: f.Agent, Reason: string(v.Reason), RunID: f.RunID,
	}
	if f.Host != nil {
		reaped.Host = *f.Host
	}
	if f.PID != nil {
		reaped.PID = *f.PID
	}
	return reaped
}

// attrs are what each line about a reap has (ORCH-065 FR-4.2).
func attrs(p Reaped) []any {
	run := ""
	if p.RunID != nil {
		run = p.RunID.String()
	}
	return []any{
		slog.Int64("job_id", p.JobID), slog.String("run_id", run), slog.String("task", p.Task), slog.String("repo", p.Repo),
		slog.String("branch", p.Branch), slog.Int("pid", p.PID), slog.String("host", p.Host), slog.String("kind", p.Kind),
		slog.String("agent", p.Agent), slog.String("reason", p.Reason), slog.String("outcome", p.Outcome),
	}
}

// code is the error of a job that an attempt is spent of, in the words that its handler would have used.
func code(v Verdict) string {
	if v.Reason == ReasonProcessDead {
		return string(outcome.Crashed)
	}
	return string(v.Reason)
}

// message says it to people.
func message(f found, v Verdict) string {
	switch {
	case v.Reason == ReasonCeiling && f.life == RunNone:
		return "nothing was seen to happen for longer than anything may take"
	case v.Reason == ReasonCeiling:
		return "it ran for longer than anything may, and couldn't be judged"
	default:
		return "its process died without a record"
	}
}
