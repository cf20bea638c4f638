package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

// failing answers every request for tasks with the code that it holds, as an error of the database.
type failing struct {
	*apitest.Backend
	code atomic.Value
}

type codedError string

func (e codedError) Error() string {
	return "failed to connect to `user=orch database=hunter2`: " + string(e)
}

func (f *failing) ListTasks(ctx context.Context, filter httpapi.TaskFilter) ([]api.Task, error) {
	if code, _ := f.code.Load().(string); code != "" {
		return nil, fmt.Errorf("list tasks: %w", codedError(code))
	}
	return f.Backend.ListTasks(ctx, filter)
}

func TestADatabaseThatIsAwayIsNoErrorOfTheServer(t *testing.T) {
	t.Parallel()
	tasks := &failing{Backend: &apitest.Backend{}}
	s := serve(t, func(c *httpapi.Config) {
		c.Tasks = tasks
		c.ErrorCode = func(err error) string {
			_, code, _ := strings.Cut(err.Error(), "`: ")
			return code
		}
	})
	ask := func(times int, status int, code string) {
		t.Helper()
		tasks.code.Store(code)
		for range times {
			got := s.ask(t, http.MethodGet, "/tasks", "")
			if code == "" {
				decode[api.TaskList](t, got, status)
			} else if problem := got.problem(t, status, code); strings.Contains(problem.Detail, "hunter2") {
				t.Errorf("it says %s", problem.Detail)
			}
		}
		s.ask(t, http.MethodGet, "/healthz", "") // knows nothing of the database
	}
	ask(3, http.StatusServiceUnavailable, "database_unreachable")
	ask(3, http.StatusServiceUnavailable, "database_read_only")
	ask(2, http.StatusServiceUnavailable, "database_timeout")
	ask(2, http.StatusOK, "")
	ask(2, http.StatusServiceUnavailable, "database_unreachable")
	log := s.logs.String()
	if n := strings.Count(log, "the database is away"); n != 4 {
		t.Errorf("an outage was said %d times, want once for each of four", n)
	}
	if n := strings.Count(log, "the database answers again"); n != 1 || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("its end was said %d times, want once, or there is an ERROR:\n%s", n, log)
	}
	ask(1, http.StatusInternalServerError, "internal")
}
