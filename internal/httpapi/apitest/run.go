package apitest

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi"
)

// Run is a run whose log a test writes.
type Run struct {
	ID      uuid.UUID
	mu      sync.Mutex
	first   int64
	log     []byte // from offset first on
	end     *httpapi.RunEnd
	changed chan struct{}
	follows int
}

// AddRun adds a run that hasn't written anything yet.
func (b *Backend) AddRun() *Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	run := &Run{ID: uuid.New(), changed: make(chan struct{})}
	if b.runs == nil {
		b.runs = map[uuid.UUID]*Run{}
	}
	b.runs[run.ID] = run
	return run
}

func (b *Backend) run(id uuid.UUID) (*Run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	run, ok := b.runs[id]
	if !ok {
		return nil, httpapi.NotFound("run " + id.String())
	}
	return run, nil
}

// Write appends to the log.
func (r *Run) Write(p []byte) (int, error) {
	r.change(func() { r.log = append(r.log, p...) })
	return len(p), nil
}

// Drop loses the bytes before offset, as rotation does.
func (r *Run) Drop(offset int64) {
	r.change(func() { r.log, r.first = r.log[offset-r.first:], offset })
}

// End ends the run.
func (r *Run) End(end httpapi.RunEnd) { r.change(func() { r.end = &end }) }

// Follows says how often the log has been followed so far.
func (r *Run) Follows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.follows
}

func (r *Run) change(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look returns what is there from offset on.
func (r *Run) look(offset int64) (part httpapi.LogPart, end *httpapi.RunEnd, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	offset = min(max(offset, r.first), r.first+int64(len(r.log)))
	part = httpapi.LogPart{Offset: offset, Data: append([]byte(nil), r.log[offset-r.first:]...)}
	return part, r.end, r.changed
}

// ListRuns implements httpapi.Runs, for the runs of SetRuns.
func (b *Backend) ListRuns(_ context.Context, key string, filter httpapi.RunFilter) ([]api.Run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.task(key); err != nil {
		return nil, err
	}
	var found []api.Run
	for _, run := range b.shown[key] {
		if filter.Job != 0 && run.JobID != filter.Job {
			continue
		}
		if found = append(found, run); run.ID == filter.Before {
			found = nil
		}
	}
	return found[:min(len(found), filter.Limit)], nil
}

// GetRun implements httpapi.Runs.
func (b *Backend) GetRun(_ context.Context, id uuid.UUID) (api.Run, error) {
	if run, ok := b.shownRun(id); ok {
		return run, nil
	}
	run, err := b.run(id)
	if err != nil {
		return api.Run{}, err
	}
	part, end, _ := run.look(0)
	found := api.Run{ID: id, RootID: uuid.UUID{1}, State: api.RunRunning, LogBytes: part.Offset + int64(len(part.Data))}
	if end != nil {
		found.State, found.ExitCode = api.RunFinished, end.ExitCode
	}
	return found, nil
}

func (b *Backend) shownRun(id uuid.UUID) (api.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, runs := range b.shown {
		for _, run := range runs {
			if run.ID == id {
				return run, true
			}
		}
	}
	return api.Run{}, false
}

// LogBounds implements httpapi.Runs.
func (b *Backend) LogBounds(_ context.Context, id uuid.UUID) (first, end int64, err error) {
	run, err := b.run(id)
	if err != nil {
		return 0, 0, err
	}
	part, _, _ := run.look(0)
	return part.Offset, part.Offset + int64(len(part.Data)), nil
}

// ReadLog implements httpapi.Runs.
func (b *Backend) ReadLog(_ context.Context, id uuid.UUID, offset int64, limit int) (httpapi.LogPart, error) {
	run, err := b.run(id)
	if err != nil {
		return httpapi.LogPart{}, err
	}
	part, _, _ := run.look(offset)
	part.Data = part.Data[:min(limit, len(part.Data))]
	return part, nil
}

// FollowLog implements httpapi.Runs.
func (b *Backend) FollowLog(
	ctx context.Context, id uuid.UUID, offset int64, emit func(httpapi.LogPart) error,
) (httpapi.RunEnd, error) {
	run, err := b.run(id)
	if err != nil {
		return httpapi.RunEnd{}, err
	}
	run.change(func() { run.follows++ })
	for {
		part, end, changed := run.look(offset)
		if len(part.Data) > 0 {
			if err := emit(part); err != nil {
				return httpapi.RunEnd{}, err
			}
			offset = part.Offset + int64(len(part.Data))
			continue
		}
		if end != nil {
			return *end, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return httpapi.RunEnd{}, context.Cause(ctx)
		}
	}
}
