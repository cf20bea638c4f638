package httpapi

import (
	"context"
	"strings"

	"orch/api"
	"orch/internal/httpapi/form"
)

// maxReason bounds the reason of a pause, in bytes: everybody who looks at the queue is shown it.
const maxReason = 300

// Pause lets nothing new begin in a lane or for a repository.
func (h *handlers) Pause(ctx context.Context, request api.PauseRequestObject) (api.PauseResponseObject, error) {
	var c form.Checker
	pause := NewPause{Held: held(&c, request.Body.Lane, request.Body.Repo), Reason: strings.TrimSpace(request.Body.Reason), Actor: actor(ctx)}
	c.Check(pause.Reason != "", "reason", "must say why: others will wonder")
	c.Plain("reason", pause.Reason, maxReason)
	if len(c.Wrong) > 0 {
		return nil, invalidFields(CodeInvalid, c.Wrong...)
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
	what := held(&c, request.Body.Lane, request.Body.Repo)
	if len(c.Wrong) > 0 {
		return nil, invalidFields(CodeInvalid, c.Wrong...)
	}
	was, err := h.jobs.Resume(ctx, what)
	if err != nil {
		return nil, err
	}
	h.queue.Drop()
	return api.Resume200JSONResponse{Scope: what.Scope, Name: what.Name, WasPaused: was}, nil
}

// held reads the one of lane and repo that was given.
func held(c *form.Checker, lane, repo *string) Held {
	what := Held{Scope: api.PauseLane, Name: value(lane)}
	if lane == nil {
		what = Held{Scope: api.PauseRepo, Name: value(repo)}
	}
	field := string(what.Scope)
	if (lane == nil) == (repo == nil) {
		c.Check(false, field, "exactly one of lane and repo must be given")
		return what
	}
	c.Check(what.Name != "", field, "must not be empty")
	c.Plain(field, what.Name, maxName)
	return what
}
