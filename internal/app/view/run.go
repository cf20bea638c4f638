package view

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/agent"
	"orch/internal/httpapi"
	"orch/internal/process"
)

// Runs is httpapi.Runs.
type Runs struct{ Sources }

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
	return shownRun(run, keys[run.TaskID]), nil
}

func (a Runs) log(ctx context.Context, id uuid.UUID) (*process.Log, error) {
	log, err := a.Runs.OpenLog(ctx, id)
	switch {
	case errors.Is(err, agent.ErrNotFound):
		return nil, httpapi.NotFound("log of the run " + id.String())
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
	if end, err = log.Size(); err != nil {
		return 0, 0, err
	}
	_, err = log.ReadAt(make([]byte, 1), 0)
	if dropped, ok := errors.AsType[*process.DroppedError](err); ok {
		first = dropped.Oldest
	} else if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return first, end, nil
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

// endWait bounds how long the end of a log waits for the end of its run to be noted.
const endWait = 10 * time.Second

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

// end says how the run ended: the log is complete a moment before that is noted.
func (a Runs) end(ctx context.Context, id uuid.UUID) (httpapi.RunEnd, error) {
	deadline := time.Now().Add(endWait)
	for {
		run, err := a.Runs.Get(ctx, id)
		if err != nil {
			return httpapi.RunEnd{}, err
		}
		if run.State == agent.StateFinished || time.Now().After(deadline) {
			end := httpapi.RunEnd{ExitCode: run.ExitCode, FinishedAt: run.FinishedAt}
			end.Ended, end.Signal, end.Outcome = orEmpty(run.Ended), orEmpty(run.Signal), string(orEmpty(run.Outcome))
			return end, nil
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return httpapi.RunEnd{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}
