package remote

import (
	"strings"
	"testing"

	"orch/api"
)

// Whoever has a server is not told to start one: it would be refused.
func TestHowItGoesOnDependsOnTheServer(t *testing.T) {
	t.Parallel()
	asks := "needs_input"
	for _, d := range []api.TaskDetail{
		{Task: api.Task{Key: "app-1", State: api.TaskBlocked}}, {Task: api.Task{Key: "app-1", State: api.TaskBlocked, ReasonCode: &asks}},
	} {
		if own, served := keptLine(d, "/srv/app", false), keptLine(d, "/srv/app", true); !strings.Contains(own, ": orch serve, then orch task") || !strings.Contains(served, ": orch task") {
			t.Errorf("%q, %q", own, served)
		}
	}
}
