package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"orch/api"
	"orch/internal/httpapi/problem"
	"orch/internal/httpapi/queueview"
)

// Seconds rounds a duration to tenths of a second, as ages in GET /queue are shown.
func Seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*10) / 10
}

func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// errorCode is the code of an error for people who may not see its text.
func errorCode(err error) string {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.Is(err, context.DeadlineExceeded):
		return problem.CodeTimeout
	}
	return problem.CodeInternal
}

// GetQueue answers from the snapshot.
func (h *handlers) GetQueue(ctx context.Context, _ api.GetQueueRequestObject) (api.GetQueueResponseObject, error) {
	snapshot, err := h.queue.Get(ctx)
	if err != nil {
		return nil, err
	}
	return queueAnswer{Encoded: snapshot, age: time.Since(snapshot.At)}, nil
}

type queueAnswer struct {
	queueview.Encoded
	age time.Duration
}

// VisitGetQueueResponse writes the bytes that were encoded once for everybody.
func (a queueAnswer) VisitGetQueueResponse(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	h.Set("Age", strconv.Itoa(max(0, int(a.age.Seconds()))))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(a.Body); err != nil {
		return &sendError{err}
	}
	return nil
}

// GetHealth says that the process answers.
func (h *handlers) GetHealth(context.Context, api.GetHealthRequestObject) (api.GetHealthResponseObject, error) {
	return api.GetHealth200JSONResponse{Status: "ok"}, nil
}

// GetReadiness says whether all that has to work does.
func (h *handlers) GetReadiness(ctx context.Context, _ api.GetReadinessRequestObject) (api.GetReadinessResponseObject, error) {
	if h.isStopping() {
		return nil, problem.Stopping()
	}
	checks, err := h.checks.Get(ctx)
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, check := range checks {
		if check.Status == CheckFailed {
			text := check.Name
			if check.Code != nil {
				text += " (" + *check.Code + ")"
			}
			failed = append(failed, text)
		}
	}
	if len(failed) > 0 {
		return nil, &RefusedError{
			Status: http.StatusServiceUnavailable, Code: problem.CodeNotReady, Detail: "not ready: " + join(failed), Checks: checks,
		}
	}
	return api.GetReadiness200JSONResponse{Status: "ready", Checks: orEmpty(checks)}, nil
}
