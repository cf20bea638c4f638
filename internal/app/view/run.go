package view

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/agent"
	"orch/internal/agent/ledger"
	"orch/internal/httpapi"
	"orch/internal/process"
)

// Runs is httpapi.Runs.
type Runs struct{ Sources }

// ListRuns implements httpapi.Runs.
func (a Runs) ListRuns(ctx context.Context, key string, filter httpapi.RunFilter) ([]api.Run, error) {
	t, err := Tasks(a).find(ctx, key)
	if err != nil {
		return nil, err
	}
	runs, err := a.Runs.Page(ctx, t.ID, ledger.Filter{Job: filter.Job, Before: filter.Before, Limit: filter.Limit})
	if err != nil {
		return nil, err
	}
	shown := make([]api.Run, 0, len(runs))
	for _, run := range runs {
		shown = append(shown, shownRun(run, key))
	}
	return shown, nil
}

// GetRun implements httpapi.Runs.
func (a Runs) GetRun(ctx context.Context, id uuid.UUID) (api.Run, error) {
	run, err := a.Runs.Get(ctx, id)
	if errors.Is(err, agent.ErrNotFound) {
		return api.Run{}, httpapi.NotFound("run " + id.String())
	}
	if err != nil {
		return api.Run{}, err
	}
	keys, err := a.Tasks.Keys(ctx, []int64{run.TaskID})
	if err != nil {
		return api.Run{}, err
	}
	shown := shownRun(run, keys[run.TaskID])
	shown.Here, err = a.here(run)
	return shown, err
}

// here is what this data root has of a run on its disk; nil when that is nothing.
func (a Runs) here(run agent.Run) (*api.RunHere, error) {
	made, err := a.Runs.Look(run)
	switch {
	case errors.Is(err, agent.ErrElsewhere), errors.Is(err, agent.ErrRemoved), errors.Is(err, agent.ErrNotFound):
		return nil, nil //nolint:nilnil // nothing is here
	case err != nil:
		return nil, err
	case made.Spec.RunID == "": // it was given up before it was made
		return nil, nil //nolint:nilnil // as above
	}
	first, end, err := bounds(made.Log)
	if err != nil {
		return nil, err
	}
	return &api.RunHere{
		Directory: made.Directory, WorkingDirectory: made.Spec.Dir, Argv: made.Spec.Argv, EnvNames: append([]string{}, made.Spec.EnvNames...),
		FirstPort: orNil(made.FirstPort), Ports: made.Ports, TimeoutS: limit(made.Spec.Timeout), StallTimeoutS: limit(made.Spec.StallTimeout),
		ToolStallTimeoutS: limit(made.Spec.ToolStallTimeout), KillGraceS: made.Spec.Grace().Seconds(), OrphanGraceS: limit(made.Spec.OrphanGrace),
		LogCapBytes: cmp.Or(made.Spec.LogCap, process.DefaultLogCap), LogFirst: first, LogEnd: end,
	}, nil
}

// limit is a time limit in seconds; nil for none.
func limit(d time.Duration) *float64 { return orNil(d.Seconds()) }

func (a Runs) log(ctx context.Context, id uuid.UUID) (*process.Log, error) {
	log, err := a.Runs.OpenLog(ctx, id)
	switch {
	case errors.Is(err, agent.ErrNotFound):
		return nil, httpapi.NotFound("log of the run " + id.String())
	case errors.Is(err, agent.ErrRemoved):
		return nil, httpapi.Refuse("log_removed", "the run's output isn't kept any more: how long and how much is kept say ORCH_KEEP_RUNS_S and ORCH_KEEP_RUNS_MB")
	case errors.Is(err, agent.ErrElsewhere):
		return nil, httpapi.Refuse("run_elsewhere", "the run's log is on the machine of another data root: ask the server there")
	}
	return log, err
}

// LogBounds implements httpapi.Runs.
func (a Runs) LogBounds(ctx context.Context, id uuid.UUID) (first, end int64, err error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	return bounds(log)
}

// bounds are the offsets of the oldest byte that is left of a log, and of its end.
func bounds(log *process.Log) (first, end int64, err error) {
	_, err = log.ReadAt(make([]byte, 1), 0)
	if dropped, ok := errors.AsType[*process.DroppedError](err); ok {
		first = dropped.Oldest
	} else if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	end, err = log.Size() // after the other: both only grow
	return first, end, err
}

// ReadLog implements httpapi.Runs.
func (a Runs) ReadLog(ctx context.Context, id uuid.UUID, offset int64, limit int) (httpapi.LogPart, error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return httpapi.LogPart{}, err
	}
	part := httpapi.LogPart{Offset: offset, Data: make([]byte, 0, limit)}
	for len(part.Data) < limit {
		at := part.Offset + int64(len(part.Data))
		n, err := log.ReadAt(part.Data[len(part.Data):limit], at)
		var dropped *process.DroppedError
		switch {
		case errors.As(err, &dropped) && len(part.Data) == 0:
			part.Offset = dropped.Oldest
			continue
		case errors.As(err, &dropped), errors.Is(err, io.EOF):
			return part, nil
		case err != nil:
			return httpapi.LogPart{}, err
		}
		part.Data = part.Data[:len(part.Data)+n]
	}
	return part, nil
}

// The end of a run is looked for at once, then less and less often: it may be noted only when its database is back, or
// another process of this data root.
const (
	endFirst = 10 * time.Millisecond
	endMost  = time.Second
)

// FollowLog implements httpapi.Runs.
func (a Runs) FollowLog(ctx context.Context, id uuid.UUID, offset int64, emit func(httpapi.LogPart) error) (httpapi.RunEnd, error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return httpapi.RunEnd{}, err
	}
	for chunk, err := range log.Follow(ctx, offset) {
		if err != nil {
			return httpapi.RunEnd{}, err
		}
		if err := emit(httpapi.LogPart{Offset: chunk.Offset, Data: chunk.Data}); err != nil {
			return httpapi.RunEnd{}, err
		}
	}
	return a.end(ctx, id)
}

// end says how the run ended, once that is noted: its log is complete before. A run whose end nobody knows has none.
func (a Runs) end(ctx context.Context, id uuid.UUID) (httpapi.RunEnd, error) {
	for wait := endFirst; ; wait = min(2*wait, endMost) {
		run, err := a.Runs.Get(ctx, id)
		if err != nil {
			return httpapi.RunEnd{}, err
		}
		if run.State == agent.StateFinished {
			end := httpapi.RunEnd{ExitCode: run.ExitCode, FinishedAt: run.FinishedAt}
			end.Ended, end.Signal, end.Outcome = orEmpty(run.Ended), orEmpty(run.Signal), string(orEmpty(run.Outcome))
			return end, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return httpapi.RunEnd{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}
