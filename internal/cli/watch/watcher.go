package watch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/cli/words"
	"orch/internal/client"
)

// Client is the part of the client that watching a task needs.
type Client interface {
	GetTask(ctx context.Context, key string) (api.TaskDetail, error)
	TaskEvents(ctx context.Context, key string, params api.ListTaskEventsParams) (api.TaskEventList, error)
	FollowLog(ctx context.Context, run uuid.UUID, offset int64, fn func(client.Chunk) error) (api.RunEnd, error)
}

// PurposeAgent is the purpose of runs that agents did; others are of gates.
const PurposeAgent = "agent"

// poll is how often a task is looked at while nothing is followed.
const poll = 150 * time.Millisecond

// RetireWait bounds how long a watcher waits for the clean-up after a task's end.
const RetireWait = 30 * time.Second

// Watcher follows one task to its end and hands everything that happens to a reporter, each thing once and in order.
type Watcher struct {
	client Client
	key    string
	report Reporter
	cursor string             // of the events that were shown whole pages of
	last   int64              // id of the last event that was shown
	seen   map[uuid.UUID]bool // runs whose log was shown
	retire string             // the reason of the retired event, once it came
	tidy   bool
}

// Reporter shows what a watcher saw.
type Reporter interface {
	Event(e api.TaskEvent)
	RunStarted(r api.Run)
	RunLog(text string)
	RunEnded(e api.RunEnd)
	Now(d api.TaskDetail) // the task as it is, for a progress line
}

// New makes a Watcher of the task with this key.
func New(c Client, key string, report Reporter) *Watcher {
	return &Watcher{client: c, key: key, report: report, seen: map[uuid.UUID]bool{}}
}

// ToEnd returns the task once it needs nothing more from orch: done, cancelled, blocked, or waiting for a person, and
// its workspace gone, unless it asks something: then the workspace stays.
func (w *Watcher) ToEnd(ctx context.Context) (api.TaskDetail, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var endedAt time.Time
	for {
		select {
		case <-ctx.Done():
			return api.TaskDetail{}, context.Cause(ctx)
		case <-timer.C:
		}
		detail, err := w.look(ctx)
		if err != nil {
			return api.TaskDetail{}, err
		}
		if atRest(detail.Task) {
			if endedAt.IsZero() {
				endedAt = time.Now()
			}
			if w.tidy || detail.Task.State == api.TaskWaiting || words.Asks(detail.Task) || time.Since(endedAt) > RetireWait {
				return detail, nil
			}
		}
		timer.Reset(poll)
	}
}

// atRest tells whether orch has nothing left to do for the task.
func atRest(t api.Task) bool {
	switch t.State {
	case api.TaskDone, api.TaskCancelled, api.TaskBlocked:
		return true
	case api.TaskWaiting:
		return t.WaitingFor != nil && *t.WaitingFor == words.PersonLands
	default:
		return false
	}
}

// look shows what is new: the log of runs first, since an event that tells of a run's end comes after its output.
func (w *Watcher) look(ctx context.Context) (api.TaskDetail, error) {
	detail, err := w.client.GetTask(ctx, w.key)
	if err != nil {
		return detail, fmt.Errorf("look at task %s: %w", w.key, err)
	}
	w.report.Now(detail)
	if err := w.events(ctx, beforeRun(detail.Runs, w.seen)); err != nil {
		return detail, err
	}
	for _, run := range slices.Backward(detail.Runs) {
		if w.seen[run.ID] || run.Purpose != PurposeAgent || run.StartedAt == nil {
			continue
		}
		w.seen[run.ID] = true
		if err := w.follow(ctx, run); err != nil {
			return detail, err
		}
	}
	return detail, w.events(ctx, time.Time{})
}

// beforeRun gives the start of the oldest agent's run that wasn't shown yet; events from before it are shown first.
func beforeRun(runs []api.Run, seen map[uuid.UUID]bool) time.Time {
	for _, run := range slices.Backward(runs) {
		if !seen[run.ID] && run.Purpose == PurposeAgent && run.StartedAt != nil {
			return *run.StartedAt
		}
	}
	return time.Time{}
}

// events shows the events that came since; with a time, only those up to it.
func (w *Watcher) events(ctx context.Context, until time.Time) error {
	for {
		params := api.ListTaskEventsParams{}
		if w.cursor != "" {
			params.Cursor = &w.cursor
		}
		page, err := w.client.TaskEvents(ctx, w.key, params)
		if err != nil {
			return fmt.Errorf("read the events of task %s: %w", w.key, err)
		}
		for _, e := range page.Items {
			if e.ID <= w.last {
				continue // shown before, from a page that wasn't shown whole
			}
			if !until.IsZero() && e.At.After(until) {
				return nil
			}
			w.report.Event(e)
			w.last = e.ID
			switch e.Kind {
			case "retired", "retire_failed":
				w.tidy, w.retire = true, e.Reason
			case "retried", "answered", "revived", "resumed", "tidied":
				w.tidy = false
			}
		}
		if page.LastCursor != nil {
			w.cursor = *page.LastCursor
		}
		if page.NextCursor == nil {
			return nil
		}
	}
}

// follow shows one run's output to its end.
func (w *Watcher) follow(ctx context.Context, run api.Run) error {
	w.report.RunStarted(run)
	lines := lineBuffer{emit: w.report.RunLog}
	end, err := w.client.FollowLog(ctx, run.ID, 0, func(c client.Chunk) error {
		lines.add(c.Text)
		return nil
	})
	lines.flush()
	if err != nil {
		return fmt.Errorf("follow the log of run %s: %w", run.ID, err)
	}
	w.report.RunEnded(end)
	return nil
}
