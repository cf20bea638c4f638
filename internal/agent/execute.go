package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/agent/environ"
	"orch/internal/agent/launch"
	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/transcript"
)

const (
	// maxStarts bounds how often one Execute starts anew after runs that never started.
	maxStarts = 3
	// elsewhereAfter is when to look again at a run that can't be judged from here.
	elsewhereAfter = 30 * time.Second
)

// attempt is one Execute.
type attempt struct {
	*Runs
	lease *queue.Lease
	req   Request
	log   *slog.Logger
}

// Execute brings the run of the request's task and key to its end: it continues the unconsumed one or starts a new
// one. The result stays until ConsumeTx. Errors: queue.ErrStopping when the worker stops (the run goes on),
// queue.ErrCancelRequested once the run has been ended, the context's cause otherwise; a *queue.SnoozeError when the
// run can't be judged from here.
func (r *Runs) Execute(ctx context.Context, l *queue.Lease, req Request) (Result, error) {
	if err := req.validate(); err != nil {
		return Result{}, err
	}
	a := &attempt{Runs: r, lease: l, req: req, log: r.log.With(
		slog.Int64("job_id", l.Job().ID), slog.Int64("task_id", req.TaskID), slog.String("key", req.Key))}
	for starts := 0; ; {
		run, err := r.Unconsumed(ctx, req.TaskID, req.Key)
		var shim *process.Run
		switch {
		case errors.Is(err, ErrNotFound):
			if run, shim, err = a.start(ctx); err != nil {
				return Result{}, err
			}
			starts++
		case err != nil:
			return Result{}, a.orCause(ctx, err)
		}
		res, err := a.finish(ctx, run, shim)
		if err != nil {
			return Result{}, err
		}
		res.Resumed = shim == nil
		if !saysNothing(res.Outcome) || starts >= maxStarts {
			return res, nil
		}
		if err := a.discard(ctx, run.ID); err != nil {
			return Result{}, err
		}
	}
}

// saysNothing tells outcomes that are no answer to the request.
func saysNothing(o outcome.Outcome) bool { return o == outcome.NeverStarted || o == outcome.Cancelled }

// halted gives the reason to leave, if there is one.
func (a *attempt) halted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-a.lease.Stopping():
		return queue.ErrStopping
	default:
		return nil
	}
}

// orCause prefers the reason to leave over an error that it has caused.
func (a *attempt) orCause(ctx context.Context, err error) error {
	if cause := a.halted(ctx); cause != nil {
		return cause
	}
	return err
}

// finish takes a run to its end, whatever state it is in.
func (a *attempt) finish(ctx context.Context, run Run, shim *process.Run) (Result, error) {
	switch {
	case run.RootID != a.cfg.RootID:
		return Result{}, &queue.SnoozeError{After: elsewhereAfter, WaitingFor: "run_elsewhere"}
	case run.State == StateFinished:
		if err := context.Cause(ctx); errors.Is(err, queue.ErrCancelRequested) {
			return Result{}, err
		}
		return a.stored(ctx, run), nil
	default:
		return a.follow(ctx, run, shim)
	}
}

// start begins a new run: intent and pin first, so that whatever happens next, the next grant comes back to this root
// and finds the run. A nil shim means that another Execute was faster; its run is returned then.
func (a *attempt) start(ctx context.Context) (Run, *process.Run, error) {
	if err := a.halted(ctx); err != nil {
		return Run{}, nil, err
	}
	if err := a.cfg.Room(ctx); err != nil {
		return Run{}, nil, a.orCause(ctx, err)
	}
	a.at("intending")
	prog, err := a.req.Start(ctx)
	if err != nil {
		return Run{}, nil, a.orCause(ctx, fmt.Errorf("prepare run: %w", err))
	}
	run, err := a.intend(prog)
	if err != nil {
		return Run{}, nil, err
	}
	if a.req.Purpose == PurposeAgent && prog.Format == transcript.None {
		prog.Format = transcript.Command
	}
	next, err := a.launch.Prepare(a.dir(run.ID), prog)
	if errors.Is(err, environ.ErrSeed) {
		err = queue.Terminal("agent_home", fmt.Errorf("agent %s: %w: correct its home in orch.yaml", prog.Agent, err))
	}
	if err != nil {
		return Run{}, nil, err
	}
	// Once more: what was prepared took some.
	if err := errors.Join(a.cfg.Room(ctx), a.halted(ctx)); err != nil {
		return Run{}, nil, a.orCause(ctx, err)
	}
	// Before the transaction that renews the lease, so that start_by never outlasts it, and there was contact since.
	intended := process.BootClock()
	var ours bool
	err = a.lease.Tx(ctx, func(tx pgx.Tx) error {
		var err error
		if ours, run.Slot, err = a.ledger.InsertTx(ctx, tx, run); err != nil || !ours {
			return err
		}
		return a.lease.PinTx(ctx, tx, run.ID)
	})
	if err != nil {
		return Run{}, nil, a.orCause(ctx, fmt.Errorf("intend run: %w", err))
	}
	if !ours {
		run, err = a.Unconsumed(ctx, a.req.TaskID, a.req.Key)
		return run, nil, err
	}
	a.at("intended")
	shim, err := a.begin(ctx, run, next, intended)
	if err != nil {
		return Run{}, nil, errors.Join(err, a.abandon(ctx, run, err))
	}
	return run, shim, nil
}

func (a *attempt) intend(prog Program) (Run, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Run{}, fmt.Errorf("name run: %w", err)
	}
	job := a.lease.Job()
	return Run{
		ID: id, TaskID: a.req.TaskID, JobID: job.ID, JobEpoch: job.Epoch, Purpose: a.req.Purpose, Key: a.req.Key,
		Stage: a.req.Stage, Round: a.req.Round, Attempt: job.Attempt, Agent: prog.Agent, Preset: prog.Preset,
		ResumedFrom: prog.ResumedFrom, State: StateIntended, RootID: a.cfg.RootID, Host: a.cfg.Self.Host,
		BootID: a.cfg.Self.BootID, PIDNamespace: a.cfg.Self.PIDNamespace,
	}, nil
}

func (a *attempt) begin(ctx context.Context, run Run, next *launch.Launch, intended int64) (*process.Run, error) {
	if err := next.Create(run.ID.String(), run.Slot, intended); err != nil {
		return nil, err
	}
	a.at("created")
	shim, err := next.Start(ctx)
	if err != nil {
		return nil, err
	}
	a.shims.Add(shim)
	a.at("launched")
	return shim, nil
}

// at tells of a step; those of agents have plain names.
func (a *attempt) at(point string) {
	if a.cfg.At == nil {
		return
	}
	if a.req.Purpose != PurposeAgent {
		point = string(a.req.Purpose) + ":" + point
	}
	a.cfg.At(point)
}

// abandon clears away an intent whose shim couldn't even be started here. What it can't do, the next grant does.
func (a *attempt) abandon(ctx context.Context, run Run, because error) error {
	if forbidden, err := process.Forbid(a.dir(run.ID)); err != nil || !forbidden {
		return err
	}
	exit := process.Exit{Why: process.WhyNeverStarted, Error: because.Error()}
	if err := a.ledger.NoteEnd(ctx, run.ID, ledger.End{Exit: exit, Outcome: outcome.NeverStarted}); err != nil {
		return err
	}
	return a.discard(ctx, run.ID)
}

// discard consumes a run that says nothing about the work.
func (a *attempt) discard(ctx context.Context, id uuid.UUID) error {
	if err := a.halted(ctx); err != nil {
		return err
	}
	err := a.lease.Tx(ctx, func(tx pgx.Tx) error {
		if err := ledger.ConsumeTx(ctx, tx, id); err != nil {
			return err
		}
		return a.lease.UnpinTx(ctx, tx)
	})
	if errors.Is(err, ErrConsumed) {
		return nil // another Execute of this grant did it
	}
	if err != nil {
		return a.orCause(ctx, fmt.Errorf("discard run: %w", err))
	}
	return nil
}
