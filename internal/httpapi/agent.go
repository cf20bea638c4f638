package httpapi

import (
	"context"

	"orch/api"
)

// ListAgents answers with all agents, by name.
func (h *handlers) ListAgents(ctx context.Context, _ api.ListAgentsRequestObject) (api.ListAgentsResponseObject, error) {
	list, err := h.agents.ListAgents(ctx)
	if err != nil {
		return nil, err
	}
	if list.Items == nil {
		list.Items = []api.Agent{}
	}
	return api.ListAgents200JSONResponse(list), nil
}
