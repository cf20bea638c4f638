// Package queueview makes what GET /queue shows: complete in its shape, encoded once for everybody who polls, and the
// last good one while no other can be taken.
package queueview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"orch/api"
)

// Encoded is a snapshot as it goes over the wire.
type Encoded struct {
	Body  []byte
	At    time.Time // when it was taken
	Queue api.Queue // what Body says; shared, to be read only
}

// NoSnapshotError says that there never was a snapshot, and why; Code is fit to be shown.
type NoSnapshotError struct {
	Code string
	Err  error
}

// Error names the code and the cause.
func (e *NoSnapshotError) Error() string { return "no snapshot yet: " + e.Code + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *NoSnapshotError) Unwrap() error { return e.Err }

// Builder takes snapshots and remembers the last good one. It has no lock: the caller builds one at a time.
type Builder struct {
	Source func(context.Context) (api.Queue, error)
	Code   func(error) string // names an error in a word that everybody may see
	Log    *slog.Logger

	last  *api.Queue
	stale string // code of the error that is on
}

// Build takes a snapshot, or falls back to the last good one, marked stale.
func (b *Builder) Build(ctx context.Context) (Encoded, error) {
	queue, err := b.Source(ctx)
	if err != nil {
		return b.fallBack(ctx, err)
	}
	if b.stale != "" {
		b.Log.InfoContext(ctx, "queue snapshot is fresh again")
		b.stale = ""
	}
	if queue.GeneratedAt.IsZero() {
		queue.GeneratedAt = time.Now().UTC()
	}
	queue.Snapshot = api.QueueSnapshot{Status: "ok"}
	fill(&queue)
	b.last = &queue
	return encode(queue)
}

// fallBack serves the last good snapshot, marked stale: a poller wants to know what was, and that it isn't now.
func (b *Builder) fallBack(ctx context.Context, err error) (Encoded, error) {
	code := b.Code(err)
	if code != b.stale { // once for each change: pollers come every second
		b.Log.WarnContext(ctx, "queue snapshot could not be taken", slog.String("code", code), slog.Any("error", err))
		b.stale = code
	}
	if b.last == nil {
		return Encoded{}, &NoSnapshotError{Code: code, Err: err}
	}
	queue := *b.last
	queue.Snapshot = api.QueueSnapshot{Status: "stale", ErrorCode: &code}
	return encode(queue)
}

func encode(queue api.Queue) (Encoded, error) {
	body, err := json.Marshal(queue)
	if err != nil {
		return Encoded{}, fmt.Errorf("encode a queue snapshot: %w", err)
	}
	return Encoded{Body: append(body, '\n'), At: queue.GeneratedAt, Queue: queue}, nil
}

// fill makes absent lists empty ones, since the shape has no null where a list belongs, and says of parts that
// nobody filled in that they are off.
func fill(q *api.Queue) {
	q.Paused = orEmpty(q.Paused)
	q.Depth = orEmpty(q.Depth)
	q.Running = orEmpty(q.Running)
	q.Leases = orEmpty(q.Leases)
	q.MergeQueue = orEmpty(q.MergeQueue)
	q.Agents = orEmpty(q.Agents)
	q.PostDeploy = orEmpty(q.PostDeploy)
	if q.Worker.Lanes == nil {
		q.Worker.Lanes = map[string]api.QueueLane{}
	}
	for _, status := range []*string{&q.Worker.Status, &q.Reaper.Status, &q.Reconcile.Status, &q.Alerts.Status} {
		*status = cmp.Or(*status, "off")
	}
	q.Config.Status = cmp.Or(q.Config.Status, "none")
	q.Alerts.Channel = cmp.Or(q.Alerts.Channel, "none")
}

func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
