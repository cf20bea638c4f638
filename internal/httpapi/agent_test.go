package httpapi_test

import (
	"net/http"
	"testing"

	"orch/api"
)

func TestAgentsAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if list := decode[api.AgentList](t, s.ask(t, http.MethodGet, "/agents", ""), http.StatusOK); list.Items == nil || len(list.Items) != 0 {
		t.Errorf("of none: %+v", list)
	}
	until := at("2026-03-01T10:00:41Z")
	s.SetAgents(api.AgentList{
		Items: []api.Agent{
			{
				Name: "coder", Preset: new("claude"), Program: new("claude"), Fallback: new("spare"), Resumes: true, ReportsCost: true,
				Paused: &api.Pause{Scope: api.PauseAgent, Name: "coder", Code: new("quota"), Until: &until},
			},
			{Name: "spare", Running: 1, Today: api.Budget{Used: api.Usage{Runs: 2, CostUsd: 1.5}}},
		},
		Today: api.Budget{MaxCostUsd: new(25.0)},
	})
	list := decode[api.AgentList](t, s.ask(t, http.MethodGet, "/agents", ""), http.StatusOK)
	if len(list.Items) != 2 || !list.Items[0].Paused.Until.Equal(until) || list.Items[1].Today.Used.CostUsd != 1.5 || *list.Today.MaxCostUsd != 25 {
		t.Errorf("got %+v", list)
	}
}
