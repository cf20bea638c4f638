package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	for addr, open := range map[string]bool{
		"127.0.0.1:8047": true, "[::1]:8047": true, "localhost:8047": true, "127.0.0.2:0": true,
		":8047": false, "0.0.0.0:8047": false, "[::]:8047": false, "192.168.1.4:8047": false, "example.org:80": false,
	} {
		cfg := apitest.Config(&apitest.Backend{}, "")
		cfg.Addr = addr
		if _, err := httpapi.New(cfg); errors.Is(err, httpapi.ErrTokenRequired) == open {
			t.Errorf("%s without a token: %v", addr, err)
		}
		cfg.Token = "secret"
		if _, err := httpapi.New(cfg); err != nil {
			t.Errorf("%s with a token: %v", addr, err)
		}
	}
	for name, spoil := range map[string]func(*httpapi.Config){
		"no door":  func(c *httpapi.Config) { c.Addr = "" },
		"no tasks": func(c *httpapi.Config) { c.Tasks = nil },
		"negative": func(c *httpapi.Config) { c.StopTimeout = -1 },
	} {
		cfg := apitest.Config(&apitest.Backend{}, "")
		spoil(&cfg)
		if _, err := httpapi.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestATakenAddressIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	cfg := apitest.Config(&apitest.Backend{}, "")
	cfg.Addr = s.server.Addr()
	server, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = server.Run(t.Context(), func() { t.Error("ready") })
	if err == nil || !strings.Contains(err.Error(), cfg.Addr) {
		t.Errorf("got %v", err)
	}
}

func TestAStopLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	s := serve(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s.SetQueue(func(context.Context) (api.Queue, error) {
		close(entered)
		<-release
		return fullQueue(), nil
	})
	got := make(chan int, 1)
	go func() { got <- s.ask(t, http.MethodGet, "/queue", "").StatusCode }()
	<-entered
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	eventually(t, "it takes no more connections", func() bool {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "unix", s.socket)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	if status := <-got; status != http.StatusOK {
		t.Errorf("got %d", status)
	}
	<-stopped
}

func TestAStopCutsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.StopTimeout, c.BuildTimeout = time.Millisecond, time.Hour })
	entered := make(chan struct{})
	s.SetQueue(func(ctx context.Context) (api.Queue, error) {
		close(entered)
		<-ctx.Done()
		return api.Queue{}, ctx.Err()
	})
	failed := make(chan error, 1)
	go func() {
		response, err := s.tcp.Do(request(t, http.MethodGet, "http://"+s.server.Addr()+"/queue", ""))
		if err == nil {
			response.Body.Close()
		}
		failed <- err
	}()
	<-entered
	s.stop()
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
}

func TestSlowRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.RequestTimeout = time.Millisecond })
	s.SetQueue(func(ctx context.Context) (api.Queue, error) {
		<-ctx.Done()
		return api.Queue{}, ctx.Err()
	})
	s.ask(t, http.MethodGet, "/queue", "").problem(t, http.StatusServiceUnavailable, "timeout")
}

// broken panics, or fails with a text that nobody outside should read.
type broken struct{ *apitest.Backend }

func (b broken) GetTask(context.Context, string) (api.TaskDetail, error) { panic("secret in a panic") }

func (b broken) ListTasks(context.Context, httpapi.TaskFilter) ([]api.Task, error) {
	return nil, errors.New("secret in an error")
}

func (b broken) CancelTask(context.Context, string, string) (api.Task, error) {
	return api.Task{}, fmt.Errorf("cancel a task: %w", errAway)
}

var errAway = errors.New("secret in a cause")

// codeOf is a Config.ErrorCode.
func codeOf(err error) string {
	if errors.Is(err, errAway) {
		return "database_unreachable"
	}
	return "internal"
}

func TestErrorsShowNoInternals(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.Tasks, c.ErrorCode = broken{&apitest.Backend{}}, codeOf })
	for _, test := range []struct {
		method, path string
		status       int
		code, logged string
	}{
		{http.MethodGet, "/tasks/demo-1", http.StatusInternalServerError, "internal", "secret in a panic"},
		{http.MethodGet, "/tasks", http.StatusInternalServerError, "internal", "secret in an error"},
		{http.MethodPost, "/tasks/demo-1/cancel", http.StatusServiceUnavailable, "database_unreachable", "secret in a cause"},
	} {
		got := s.ask(t, test.method, test.path, "", "X-Request-Id", "look-for-me")
		problem := got.problem(t, test.status, test.code)
		if strings.Contains(string(got.body), "secret") || problem.RequestID == nil || *problem.RequestID != "look-for-me" {
			t.Errorf("%s: got %s", test.path, got.body)
		}
		if !strings.Contains(s.logs.String(), test.logged) {
			t.Errorf("%s: the log doesn't say %q", test.path, test.logged)
		}
	}
}

func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := serve(t)
		run := s.AddRun()
		var wg sync.WaitGroup
		var stopped atomic.Bool // another test's server may get the port
		for range 3 {
			wg.Go(func() {
				for !stopped.Load() {
					response, err := s.tcp.Do(request(t, http.MethodGet, "http://"+s.server.Addr()+"/queue", ""))
					if err != nil {
						return
					}
					response.Body.Close()
				}
			})
			s.follow(t, run, "")
		}
		s.stop()
		stopped.Store(true)
		s.tcp.CloseIdleConnections()
		wg.Wait()
		if s.server.Addr() != "" {
			t.Error("a stopped server has an address")
		}
	}
}

func TestOneServerRunsAgainAfterAStop(t *testing.T) {
	t.Parallel()
	server, err := httpapi.New(apitest.Config(&apitest.Backend{}, socketDir(t)+"/orch.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := server.Run(ctx, func() { cancel(nil) }); err != nil {
			t.Fatal(err)
		}
	}
}
