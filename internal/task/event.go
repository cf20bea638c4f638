package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// EventKind says what happened to a task.
type EventKind string

// Kinds of events.
const (
	EventCreated      EventKind = "created"
	EventStageStarted EventKind = "stage_started"
	EventRunFinished  EventKind = "run_finished"
	EventGatePassed   EventKind = "gate_passed"
	EventGateFailed   EventKind = "gate_failed"
	EventAdvanced     EventKind = "advanced"
	EventReturned     EventKind = "returned"
	EventWaiting      EventKind = "waiting"
	EventBlocked      EventKind = "blocked"
	EventRetried      EventKind = "retried"
	EventAnswered     EventKind = "answered"
	EventRevived      EventKind = "revived"
	EventResumed      EventKind = "resumed"
	EventTidied       EventKind = "tidied"
	EventHostLost     EventKind = "host_lost"
	EventLanded       EventKind = "landed"
	EventDone         EventKind = "done"
	EventCancelled    EventKind = "cancelled"
	EventSalvaged     EventKind = "salvaged"
	EventRetired      EventKind = "retired"
	EventRetireFailed EventKind = "retire_failed"
	EventRestored     EventKind = "restored"
)

// Event is one line of a task's history. Rows are never changed.
type Event struct {
	ID     int64           `db:"id"`
	TaskID int64           `db:"task_id"`
	At     time.Time       `db:"at"`
	Actor  string          `db:"actor"`
	Kind   EventKind       `db:"kind"`
	Reason string          `db:"reason"`
	Data   json.RawMessage `db:"data"`
}

const maxReason = 4 << 10 // bytes of a reason

// Bounds of foreign text.
const (
	MaxText        = 8 << 10 // bytes of output that is kept with a task
	MaxEventOutput = 2 << 10 // bytes of output in an event; the evidence has more
)

// facts are the data of an event. Strings in it are cleaned when it is written.
type facts map[string]any

// NoteTx appends an event that moves nothing, by orch itself: what a job did for the task. Strings in data are cleaned.
func (s *Store) NoteTx(ctx context.Context, tx pgx.Tx, taskID int64, kind EventKind, reason string, data map[string]any) error {
	return appendEventTx(ctx, tx, taskID, System, kind, reason, data)
}

// NoteBy appends an event that moves nothing, of something that actor did with the task.
func (s *Store) NoteBy(ctx context.Context, taskID int64, actor string, kind EventKind, reason string, data map[string]any) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return appendEventTx(ctx, tx, taskID, actorOr(actor), kind, reason, data)
	})
}

func appendEventTx(ctx context.Context, tx pgx.Tx, taskID int64, actor string, kind EventKind, reason string, data facts) error {
	if data == nil {
		data = facts{}
	}
	for key, value := range data {
		if text, ok := value.(string); ok {
			data[key] = Clean(text, MaxText)
		}
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("append event %s: %w", kind, err)
	}
	_, err = tx.Exec(ctx, `insert into task_events (task_id, actor, kind, reason, data)
		values (@task, @actor, @kind, @reason, @data)`,
		pgx.NamedArgs{"task": taskID, "actor": actor, "kind": string(kind), "reason": Clean(reason, maxReason), "data": json.RawMessage(encoded)})
	if err != nil {
		return fmt.Errorf("append event %s: %w", kind, err)
	}
	return nil
}

// Clean makes foreign text storable (valid UTF-8, no NUL) and keeps at most the last limit bytes of it.
func Clean(s string, limit int) string {
	s = keepEnd(s, limit)
	s = strings.ReplaceAll(s, "\x00", "")
	return keepEnd(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

func keepEnd(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	cut := 0
	for cut < min(utf8.UTFMax-1, len(s)) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	return s[cut:]
}
