package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi/form"
	"orch/internal/httpapi/problem"
)

const (
	defaultLogLimit = 1 << 20
	maxLogLimit     = 4 << 20
)

// ListTaskRuns answers with a page of a task's runs.
func (h *handlers) ListTaskRuns(ctx context.Context, request api.ListTaskRunsRequestObject) (api.ListTaskRunsResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	size, _, err := page(request.Params.Limit, nil)
	if err != nil {
		return nil, err
	}
	filter := RunFilter{Job: value(request.Params.Job), Limit: size + 1}
	if cursor := value(request.Params.Cursor); cursor != "" {
		before, ok := form.CursorID(cursor)
		if !ok {
			return nil, badCursor()
		}
		filter.Before = before
	}
	if request.Params.Job != nil && filter.Job < 1 {
		return nil, problem.BadParameter("job", "must be the number of a job")
	}
	runs, err := h.runs.ListRuns(ctx, request.Key, filter)
	if err != nil {
		return nil, err
	}
	answer := api.ListTaskRuns200JSONResponse{Items: orEmpty(runs)}
	if len(runs) > size {
		answer.Items = runs[:size]
		answer.NextCursor = new(form.CursorAtID(runs[size-1].ID))
	}
	return answer, nil
}

// GetRun answers with one run.
func (h *handlers) GetRun(ctx context.Context, request api.GetRunRequestObject) (api.GetRunResponseObject, error) {
	run, err := h.runs.GetRun(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetRun200JSONResponse(run), nil
}

// GetRunLog answers with a piece of a log, or with a stream of all that comes.
func (h *handlers) GetRunLog(ctx context.Context, request api.GetRunLogRequestObject) (api.GetRunLogResponseObject, error) {
	params := request.Params
	limit := defaultLogLimit
	if params.Limit != nil {
		limit = *params.Limit
	}
	if limit < 1 || limit > maxLogLimit {
		return nil, problem.BadParameter("limit", fmt.Sprintf("must be between 1 and %d", maxLogLimit))
	}
	wanted := value(params.Offset)
	if value(params.Follow) && value(params.LastEventID) != "" {
		id, err := strconv.ParseInt(*params.LastEventID, 10, 64)
		if err != nil || id < 0 {
			return nil, problem.BadParameter("Last-Event-ID", "must be the id of an event of this stream")
		}
		wanted = id
	}
	first, end, err := h.runs.LogBounds(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	offset := resolveOffset(wanted, first, end)
	if value(params.Follow) {
		return h.openStream(ctx, request.ID, offset)
	}
	return h.logText(ctx, request.ID, offset, limit)
}

// resolveOffset turns the offset that was asked for into one that the log has. Beyond the end there may be a client
// that saw bytes which a crash took back: it goes on with what is written now.
func resolveOffset(wanted, first, end int64) int64 {
	if wanted < 0 {
		wanted += end
	}
	return min(max(wanted, first), end)
}

func (h *handlers) logText(ctx context.Context, id uuid.UUID, offset int64, limit int) (api.GetRunLogResponseObject, error) {
	part, err := h.runs.ReadLog(ctx, id, offset, limit)
	if err != nil {
		return nil, err
	}
	if len(part.Data) == 0 {
		part.Offset = offset
	}
	_, end, err := h.runs.LogBounds(ctx, id)
	if err != nil {
		return nil, err
	}
	return logAnswer{part: part, end: max(end, part.Offset+int64(len(part.Data)))}, nil
}

type logAnswer struct {
	part LogPart
	end  int64
}

// VisitGetRunLogResponse writes the bytes as they are.
func (a logAnswer) VisitGetRunLogResponse(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(a.part.Data)))
	h.Set("Orch-Log-Offset", strconv.FormatInt(a.part.Offset, 10))
	h.Set("Orch-Log-Next", strconv.FormatInt(a.part.Offset+int64(len(a.part.Data)), 10))
	h.Set("Orch-Log-End", strconv.FormatInt(a.end, 10))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(a.part.Data); err != nil {
		return &sendError{err}
	}
	return nil
}
