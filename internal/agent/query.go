package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"orch/internal/agent/launch"
	"orch/internal/agent/ledger"
	"orch/internal/agent/sight"
	"orch/internal/process"
)

// What is kept of runs, by the names that it has here.
type (
	// Run is a row of table runs.
	Run = ledger.Run
	// Purpose says what a run is for.
	Purpose = ledger.Purpose
	// Usage is what a run has used.
	Usage = ledger.Usage
	// Session says whose session is to be gone on with.
	Session = ledger.Session
	// Program is what a run starts.
	Program = launch.Program
	// Sight is what a run seems to be.
	Sight = sight.Sight
)

// PromptFile stands for the path of the prompt's file in a program's Argv and Env.
const PromptFile = launch.PromptFile

// The purposes and states of a run.
const (
	PurposeAgent = ledger.PurposeAgent
	PurposeGate  = ledger.PurposeGate
	PurposeMerge = ledger.PurposeMerge

	StateIntended = ledger.StateIntended
	StateRunning  = ledger.StateRunning
	StateFinished = ledger.StateFinished
)

var (
	// ErrNotFound means that there is no such run.
	ErrNotFound = ledger.ErrNotFound
	// ErrConsumed means that a run's result was used before, or that it has none yet.
	ErrConsumed = ledger.ErrConsumed
	// ErrElsewhere means that a run belongs to another data root.
	ErrElsewhere = errors.New("run belongs to another data root")
	// ErrMassDeath means that too many runs seem to have died at once for that to be believed.
	ErrMassDeath = errors.New("too many runs seem dead at once")
	// ErrNotDead means that a run isn't dead for certain, or that its end says more than that.
	ErrNotDead = errors.New("run didn't just die")
	// ErrRemoved means that a run's output isn't kept any more.
	ErrRemoved = errors.New("output of the run was removed")
)

// Look reads what a run of this root was made with, as long as that is kept. Errors: ErrElsewhere, ErrRemoved, ErrNotFound.
func (r *Runs) Look(run Run) (launch.Made, error) {
	dir, err := r.open(run)
	if err != nil {
		return launch.Made{}, err
	}
	return r.launch.Look(r.dir(run.ID), dir, run.Slot)
}

// OpenLog gives the output of a run of this root. Errors: those of Look.
func (r *Runs) OpenLog(ctx context.Context, id uuid.UUID) (*process.Log, error) {
	row, err := r.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	dir, err := r.open(row)
	if err != nil {
		return nil, err
	}
	return dir.Log(), nil
}

func (r *Runs) open(run Run) (*process.Run, error) {
	switch {
	case run.RootID != r.cfg.RootID:
		return nil, ErrElsewhere
	case run.RemovedAt != nil:
		return nil, ErrRemoved
	}
	dir, err := process.OpenRun(r.dir(run.ID))
	if errors.Is(err, process.ErrNoRun) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	return dir, nil
}

// EndTask ends every run of a task that belongs to this root and whose end isn't noted, and notes it: the task was
// cancelled while no job followed them. An intent is forbidden, and one that had ended by itself keeps its own outcome.
// Not one run that can't be ended keeps the others from it. It may be repeated, also at the same time.
func (r *Runs) EndTask(ctx context.Context, taskID int64) error {
	runs, err := r.OpenOf(ctx, taskID)
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs {
		failed = append(failed, r.endSoon(ctx, run, process.WhyCancelled))
	}
	return errors.Join(failed...)
}
