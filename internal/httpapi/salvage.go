package httpapi

import (
	"context"

	"orch/api"
)

// maxBranch bounds a branch's name, in bytes.
const maxBranch = 200

// ListSalvages answers with what was kept of a task's work.
func (h *handlers) ListSalvages(ctx context.Context, request api.ListSalvagesRequestObject) (api.ListSalvagesResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	all, err := h.tasks.Salvages(ctx, request.Key)
	if err != nil {
		return nil, err
	}
	return api.ListSalvages200JSONResponse{Items: orEmpty(all)}, nil
}

// RestoreTask puts what was kept of a task's work on a branch.
func (h *handlers) RestoreTask(ctx context.Context, request api.RestoreTaskRequestObject) (api.RestoreTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	r := Restore{Salvage: value(request.Body.Salvage), Branch: value(request.Body.Branch)}
	if request.Body.Salvage != nil && r.Salvage < 1 {
		return nil, Invalid("salvage", "must be at least 1")
	}
	if request.Body.Branch != nil && r.Branch == "" || len(r.Branch) > maxBranch {
		return nil, Invalid("branch", "must be the name of a branch, of at most 200 bytes")
	}
	restored, err := h.tasks.RestoreTask(ctx, request.Key, actor(ctx), r)
	if err != nil {
		return nil, err
	}
	return api.RestoreTask200JSONResponse(restored), nil
}
