package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/httpapi"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := serve(t)
	paused := decode[api.Pause](t, s.tell(t, http.MethodPost, "/pause", `{"lane":"agents","reason":" budget is spent "}`), http.StatusOK)
	if paused.Scope != api.PauseLane || paused.Name != "agents" || paused.Reason != "budget is spent" || paused.Actor != "cli" || paused.Since.IsZero() {
		t.Errorf("got %+v", paused)
	}
	paused = decode[api.Pause](t, s.ask(t, http.MethodPost, "/pause", `{"repo":"demo","reason":"freeze","lane":null}`), http.StatusOK)
	if paused.Scope != api.PauseRepo || paused.Name != "demo" || paused.Actor != "api" {
		t.Errorf("got %+v", paused)
	}
	paused = decode[api.Pause](t, s.ask(t, http.MethodPost, "/pause", `{"agent":"coder","reason":"its provider is down"}`), http.StatusOK)
	if paused.Scope != api.PauseAgent || paused.Name != "coder" || paused.Code != nil || paused.Until != nil {
		t.Errorf("got %+v", paused)
	}
	if resumed := decode[api.Resumed](t, s.ask(t, http.MethodPost, "/resume", `{"agent":"coder"}`), http.StatusOK); !resumed.WasPaused {
		t.Errorf("got %+v", resumed)
	}
	for _, want := range []bool{true, false} { // again is no error
		resumed := decode[api.Resumed](t, s.ask(t, http.MethodPost, "/resume", `{"lane":"agents"}`), http.StatusOK)
		if resumed.WasPaused != want || resumed.Scope != api.PauseLane || resumed.Name != "agents" {
			t.Errorf("got %+v", resumed)
		}
	}
	if left := s.Pauses(); len(left) != 1 || left[0].Name != "demo" {
		t.Errorf("left: %+v", left)
	}
}

func TestTheQueueShowsAPauseAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.QueueEvery = time.Hour })
	s.SetQueue(func(context.Context) (api.Queue, error) { return api.Queue{Paused: s.Pauses()}, nil })
	paused := func(want int) {
		t.Helper()
		for range 2 {
			if got := decode[api.Queue](t, s.ask(t, http.MethodGet, "/queue", ""), http.StatusOK).Paused; len(got) != want {
				t.Errorf("%d paused, want %d", len(got), want)
			}
		}
	}
	paused(0)
	s.ask(t, http.MethodPost, "/pause", `{"lane":"agents","reason":"budget is spent"}`)
	paused(1)
	s.ask(t, http.MethodPost, "/resume", `{"lane":"agents"}`)
	paused(0)
}

func TestBadPausesAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := strings.Repeat("x", 301)
	for body, want := range map[string]string{
		`/pause {"lane":"agents"}`:                             "reason",
		`/pause {"lane":"agents","reason":" "}`:                "reason",
		`/pause {"lane":"agents","reason":"` + long + `"}`:     "reason",
		`/pause {"lane":"agents","reason":"a\nb"}`:             "reason",
		`/pause {"lane":"agents","reason":"a\u001b[2Jb"}`:      "reason",
		`/pause {"lane":"agents","reason":"a\u0000b"}`:         "reason",
		`/pause {"reason":"x"}`:                                "repo",
		`/pause {"lane":"agents","repo":"demo","reason":"x"}`:  "lane",
		`/pause {"lane":"","reason":"x"}`:                      "lane",
		`/pause {"repo":"","reason":"x"}`:                      "repo",
		`/pause {"repo":"a\u0000b","reason":"x"}`:              "repo",
		`/pause {"repo":"` + long + `","reason":"x"}`:          "repo",
		`/pause {"repo":"nowhere","reason":"x"}`:               "repo",
		`/pause {"agent":"","reason":"x"}`:                     "agent",
		`/pause {"agent":"coder","repo":"demo","reason":"x"}`:  "repo",
		`/pause {"lane":"agents","reason":"x","until":"noon"}`: "until",
		`/resume {}`: "repo",
		`/resume {"lane":"agents","repo":"demo"}`: "lane",
		`/resume {"agent":"nobody","lane":"x"}`:   "lane",
		`/resume {"lane":"agents","reason":"x"}`:  "reason",
	} {
		path, body, _ := strings.Cut(body, " ")
		code := "invalid"
		if want == "until" || path == "/resume" && want == "reason" {
			code = "unknown_field"
		}
		problem := s.tell(t, http.MethodPost, path, body).problem(t, http.StatusUnprocessableEntity, code)
		if problem.Errors == nil || len(*problem.Errors) != 1 || (*problem.Errors)[0].Field != want {
			t.Errorf("%s %s: got %s", path, body, problem.Detail)
		}
	}
	for _, path := range []string{"/pause", "/resume"} {
		s.tell(t, http.MethodPost, path, `[]`).problem(t, http.StatusBadRequest, "bad_json")
		s.tell(t, http.MethodPost, path, "").problem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
		s.tell(t, http.MethodGet, path, "").problem(t, http.StatusMethodNotAllowed, "method_not_allowed")
	}
	if left := s.Pauses(); len(left) != 0 {
		t.Errorf("paused: %+v", left)
	}
}

// Whoever may not ask for tasks may not stop them either.
func TestPausingNeedsTheToken(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.Token, c.QueuePublic = "secret", true })
	s.AddJob(api.Job{ID: 1, State: api.JobFailed})
	for path, body := range map[string]string{"/pause": `{"lane":"agents","reason":"x"}`, "/resume": `{"lane":"agents"}`, "/jobs/1/retry": ""} {
		s.ask(t, http.MethodPost, path, body).problem(t, http.StatusUnauthorized, "unauthorized")
	}
	if len(s.Pauses()) != 0 {
		t.Error("paused without a token")
	}
}

func TestRetryJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.AddJob(api.Job{ID: 1, Kind: "jobs.prune", State: api.JobFailed})
	if job := decode[api.Job](t, s.ask(t, http.MethodPost, "/jobs/1/retry", ""), http.StatusOK); job.State != api.JobQueued {
		t.Errorf("got %+v", job)
	}
	s.ask(t, http.MethodPost, "/jobs/1/retry", "").problem(t, http.StatusConflict, "job_not_failed")
	for _, path := range []string{"/jobs/9/retry", "/jobs/0/retry"} {
		s.ask(t, http.MethodPost, path, "").problem(t, http.StatusNotFound, "not_found")
	}
	s.ask(t, http.MethodPost, "/jobs/x/retry", "").problem(t, http.StatusBadRequest, "bad_parameter")
}
