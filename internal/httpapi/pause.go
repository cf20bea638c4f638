package httpapi

import (
	"context"
	"strings"

	"orch/api"
	"orch/internal/httpapi/form"
	"orch/internal/httpapi/problem"
)

// maxReason bounds the reason of a pause, in bytes: everybody who looks at the queue is shown it.
const maxReason = 300

// Pause lets nothing new begin in a lane, for a repository or by an agent.
func (h *handlers) Pause(ctx context.Context, request api.PauseRequestObject) (api.PauseResponseObject, error) {
	var c form.Checker
	pause := NewPause{Held: held(&c, request.Body.Lane, request.Body.Repo, request.Body.Agent), Reason: strings.TrimSpace(request.Body.Reason), Actor: actor(ctx)}
	c.Check(pause.Reason != "", "reason", "must say why: others will wonder")
	c.Plain("reason", pause.Reason, maxReason)
	if len(c.Wrong) > 0 {
		return nil, problem.InvalidFields(problem.CodeInvalid, c.Wrong...)
	}
	paused, err := h.jobs.Pause(ctx, pause)
	if err != nil {
		return nil, err
	}
	h.queue.Drop() // whoever paused looks at the queue next
	return api.Pause200JSONResponse(paused), nil
}

// Resume ends a pause.
func (h *handlers) Resume(ctx context.Context, request api.ResumeRequestObject) (api.ResumeResponseObject, error) {
	var c form.Checker
	what := held(&c, request.Body.Lane, request.Body.Repo, request.Body.Agent)
	if len(c.Wrong) > 0 {
		return nil, problem.InvalidFields(problem.CodeInvalid, c.Wrong...)
	}
	was, err := h.jobs.Resume(ctx, what)
	if err != nil {
		return nil, err
	}
	h.queue.Drop()
	return api.Resume200JSONResponse{Scope: what.Scope, Name: what.Name, WasPaused: was}, nil
}

// held reads the one of lane, repo and agent that was given.
func held(c *form.Checker, lane, repo, agent *string) Held {
	what, given := Held{Scope: api.PauseRepo}, 0
	for _, choice := range []struct {
		scope api.PauseScope
		name  *string
	}{{api.PauseAgent, agent}, {api.PauseRepo, repo}, {api.PauseLane, lane}} {
		if choice.name != nil {
			what = Held{Scope: choice.scope, Name: *choice.name}
			given++
		}
	}
	field := string(what.Scope)
	if given != 1 {
		c.Check(false, field, "exactly one of lane, repo and agent must be given")
		return what
	}
	c.Check(what.Name != "", field, "must not be empty")
	c.Plain(field, what.Name, maxName)
	return what
}
