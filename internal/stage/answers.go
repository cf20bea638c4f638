package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"orch/internal/task"
)

// answers are what a person has answered to earlier agents of the task, as far as its feedback doesn't tell: a red gate or
// the next stage has taken the place of that, and whoever begins now would have to ask it again.
func (h *Handler) answers(ctx context.Context, t task.Task) (string, error) {
	const most = 10
	events, err := h.store.EventsOf(ctx, t.ID, task.EventAnswered)
	if err != nil {
		return "", fmt.Errorf("read the answers of task %s: %w", t.Key, err)
	}
	var told strings.Builder
	for _, event := range events[max(0, len(events)-most):] {
		var data map[string]any
		if err := json.Unmarshal(event.Data, &data); err != nil {
			return "", fmt.Errorf("read event %d: %w", event.ID, err)
		}
		asked, known := data[task.FactAsked].(string)
		if !known || strings.Contains(t.Feedback, asked+"\nAnswer: ") {
			continue
		}
		fmt.Fprintf(&told, "Earlier in this task %s\nA person answered: %s\n", asked, event.Reason)
	}
	return told.String(), nil
}
