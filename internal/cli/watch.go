package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/client"
)

// watched is the part of the client that watching a task needs.
type watched interface {
	GetTask(ctx context.Context, key string) (api.TaskDetail, error)
	TaskEvents(ctx context.Context, key string, params api.ListTaskEventsParams) (api.TaskEventList, error)
	FollowLog(ctx context.Context, run uuid.UUID, offset int64, fn func(client.Chunk) error) (api.RunEnd, error)
}

// watchPoll is how often a task is looked at while nothing is followed.
const watchPoll = 150 * time.Millisecond

// retireWait bounds how long a watcher waits for the clean-up after a task's end.
const retireWait = 30 * time.Second

// watcher follows one task to its end and hands everything that happens to a reporter, each thing once and in order.
type watcher struct {
	client watched
	key    string
	report reporter
	cursor string             // of the events that were shown whole pages of
	last   int64              // id of the last event that was shown
	seen   map[uuid.UUID]bool // runs whose log was shown
	retire string             // the reason of the retired event, once it came
	tidy   bool
}

// reporter shows what a watcher saw.
type reporter interface {
	event(e api.TaskEvent)
	runStarted(r api.Run)
	runLog(text string)
	runEnded(e api.RunEnd)
	now(d api.TaskDetail) // the task as it is, for a progress line
}

func newWatcher(client watched, key string, report reporter) *watcher {
	return &watcher{client: client, key: key, report: report, seen: map[uuid.UUID]bool{}}
}

// toEnd returns the task once it needs nothing more from orch: done, cancelled, blocked, or waiting for a person, and
// its workspace gone.
func (w *watcher) toEnd(ctx context.Context) (api.TaskDetail, error) {
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
			if w.tidy || detail.Task.State == api.TaskWaiting || time.Since(endedAt) > retireWait {
				return detail, nil
			}
		}
		timer.Reset(watchPoll)
	}
}

// atRest tells whether orch has nothing left to do for the task.
func atRest(t api.Task) bool {
	switch t.State {
	case api.TaskDone, api.TaskCancelled, api.TaskBlocked:
		return true
	case api.TaskWaiting:
		return t.WaitingFor != nil && *t.WaitingFor == waitingForPerson
	default:
		return false
	}
}

// look shows what is new: the log of runs first, since an event that tells of a run's end comes after its output.
func (w *watcher) look(ctx context.Context) (api.TaskDetail, error) {
	detail, err := w.client.GetTask(ctx, w.key)
	if err != nil {
		return detail, fmt.Errorf("look at task %s: %w", w.key, err)
	}
	w.report.now(detail)
	if err := w.events(ctx, beforeRun(detail.Runs, w.seen)); err != nil {
		return detail, err
	}
	for _, run := range slices.Backward(detail.Runs) {
		if w.seen[run.ID] || run.Purpose != purposeAgent || run.StartedAt == nil {
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
		if !seen[run.ID] && run.Purpose == purposeAgent && run.StartedAt != nil {
			return *run.StartedAt
		}
	}
	return time.Time{}
}

// events shows the events that came since; with a time, only those up to it.
func (w *watcher) events(ctx context.Context, until time.Time) error {
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
			w.report.event(e)
			w.last = e.ID
			switch e.Kind {
			case "retired", "retire_failed":
				w.tidy, w.retire = true, e.Reason
			case "retried", "revived":
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
func (w *watcher) follow(ctx context.Context, run api.Run) error {
	w.report.runStarted(run)
	lines := lineBuffer{emit: w.report.runLog}
	end, err := w.client.FollowLog(ctx, run.ID, 0, func(c client.Chunk) error {
		lines.add(c.Text)
		return nil
	})
	lines.flush()
	if err != nil {
		return fmt.Errorf("follow the log of run %s: %w", run.ID, err)
	}
	w.report.runEnded(end)
	return nil
}

// facts are the data of an event as far as people are shown them.
type facts struct {
	Stage    string `json:"stage"`
	From     string `json:"from"`
	To       string `json:"to"`
	Round    int    `json:"round"`
	Agent    string `json:"agent"`
	Gate     string `json:"gate"`
	Command  string `json:"command"`
	ExitCode *int   `json:"exit_code"`
	Output   string `json:"output"`
	Reused   bool   `json:"reused"`
	Code     string `json:"code"`
	Commit   string `json:"commit"`
	Ref      string `json:"ref"`
	Outcome  string `json:"outcome"`
}

func factsOf(e api.TaskEvent) facts {
	var f facts
	_ = json.Unmarshal(e.Data, &f) // an event with other facts shows its reason alone
	return f
}

func shortSHA(sha string) string {
	if len(sha) > 10 {
		return sha[:10]
	}
	return sha
}

// indent puts each line of a text behind a bar, at most the last n lines.
func indent(text string, n int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("… %d lines before", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	for i, line := range lines {
		lines[i] = "    │ " + printable(line)
	}
	return lines
}

var errInterrupted = errors.New("interrupted")
