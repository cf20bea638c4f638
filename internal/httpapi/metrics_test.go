package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"orch/api"
	"orch/internal/httpapi"
)

// exposition answers in the format that a scrape asks for, as Prometheus' own handler does.
func exposition(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if r.Header.Get("Accept") != "" || r.Header.Get("Accept-Encoding") != "" {
		w.Header().Set("Content-Type", "application/vnd.google.protobuf")
	}
	_, _ = io.WriteString(w, "orch_landed_total 57\n")
}

func TestMetricsNeedTheTokenUnlessPublic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		token, auth string
		public      bool
		method      string
		want        int
	}{
		"no token":             {token: "secret", want: 401},
		"wrong token":          {token: "secret", auth: "Bearer wrong", want: 401},
		"token":                {token: "secret", auth: "Bearer secret", want: 200},
		"public":               {token: "secret", public: true, want: 200},
		"public, other method": {token: "secret", public: true, method: http.MethodPost, want: 401},
		"loopback":             {want: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *httpapi.Config) {
				c.Token, c.QueuePublic, c.Metrics = test.token, test.public, http.HandlerFunc(exposition)
			})
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			got := s.ask(t, method, "/metrics", "", "Authorization", test.auth, "Accept", "application/vnd.google.protobuf")
			if got.StatusCode != test.want {
				t.Fatalf("got %d %s, want %d", got.StatusCode, got.body, test.want)
			}
			if text := string(got.body); test.want == http.StatusOK && !strings.Contains(text, "orch_landed_total 57") {
				t.Errorf("got %s", text)
			}
			if s.tell(t, http.MethodGet, "/metrics", "").StatusCode != http.StatusOK {
				t.Error("the socket asks for a token")
			}
		})
	}
}

func TestWithoutMetricsThereIsNoSuchPath(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ask(t, http.MethodGet, "/metrics", "").problem(t, http.StatusNotFound, "not_found")
}

// What metrics are read off is what GET /queue shows: one build for both.
func TestSnapshotIsThatOfTheQueue(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var builds atomic.Int64
	s.SetQueue(func(context.Context) (api.Queue, error) {
		return api.Queue{Tasks: api.QueueTasks{LandedTotal: builds.Add(1)}}, nil
	})
	shown := decode[api.Queue](t, s.ask(t, http.MethodGet, "/queue", ""), http.StatusOK)
	got, err := s.server.Snapshot(t.Context())
	if err != nil || got.Tasks.LandedTotal < shown.Tasks.LandedTotal || got.Snapshot.Status != "ok" {
		t.Errorf("got %+v %v, shown %+v", got.Tasks, err, shown.Tasks)
	}
	s.stop()
	if _, err := s.server.Snapshot(t.Context()); err == nil {
		t.Error("a snapshot of a server that has stopped")
	}
}
