package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"orch/api"
	"orch/internal/client"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orch") //nolint:usetesting // short: a socket's path may hold 107 bytes only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "orch.sock")
}

func dial(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestEveryCall(t *testing.T) {
	t.Parallel()
	b := &apitest.Backend{}
	b.SetQueue(func(context.Context) (api.Queue, error) {
		return api.Queue{Counts: api.QueueCounts{Queued: 3}}, nil
	})
	b.AddJob(api.Job{ID: 1, Kind: "stage", State: api.JobQueued})
	failed := map[string]int64{"socket": 2, "tcp": 3}
	for _, id := range failed {
		b.AddJob(api.Job{ID: id, State: api.JobFailed})
	}
	run := b.AddRun()
	if _, err := run.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	socket := socketPath(t)
	cfg := apitest.Config(b, socket)
	cfg.Token = "secret"
	server, _ := apitest.Start(t, cfg)
	for name, at := range map[string]client.Config{
		"socket": {Socket: socket},
		"tcp":    {URL: "http://" + server.Addr(), Token: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ctx := dial(t, at), t.Context()
			queue, err := c.Queue(ctx)
			check(t, err, queue.Counts.Queued == 3, queue)
			ready, err := c.Readiness(ctx)
			check(t, err, ready.Status == "ready", ready)
			task, err := c.CreateTask(ctx, api.NewTask{Repo: new("acme/" + name), Title: "x"})
			check(t, err, task.Title == "x", task)
			detail, err := c.GetTask(ctx, task.Key)
			check(t, err, detail.Task.ID == task.ID, detail)
			tasks, err := c.ListTasks(ctx, api.ListTasksParams{Repo: &task.Repo, State: &[]api.TaskState{api.TaskActive, api.TaskDone}})
			check(t, err, len(tasks.Items) == 1, tasks)
			events, err := c.TaskEvents(ctx, task.Key, api.ListTaskEventsParams{})
			check(t, err, len(events.Items) == 0, events)
			task, err = c.CancelTask(ctx, task.Key)
			check(t, err, task.State == api.TaskCancelled, task)
			jobs, err := c.ListJobs(ctx, api.ListJobsParams{Limit: new(10)})
			check(t, err, len(jobs.Items) == 3, jobs)
			job, err := c.GetJob(ctx, 1)
			check(t, err, job.Kind == "stage", job)
			job, err = c.RetryJob(ctx, failed[name])
			check(t, err, job.State == api.JobQueued, job)
			job, err = c.CancelJob(ctx, failed[name])
			check(t, err, job.State == api.JobCancelled, job)
			paused, err := c.Pause(ctx, api.PauseRequest{Lane: new(name), Reason: "x"})
			check(t, err, paused.Scope == api.PauseLane && paused.Name == name, paused)
			resumed, err := c.Resume(ctx, api.ResumeRequest{Lane: new(name)})
			check(t, err, resumed.WasPaused, resumed)
			found, err := c.GetRun(ctx, run.ID)
			check(t, err, found.LogBytes == 6, found)
			log, err := c.ReadLog(ctx, run.ID, -3, 2)
			check(t, err, string(log.Text) == "lo" && log.Offset == 3 && log.Next == 5 && log.End == 6, log)
		})
	}
}

func check(t *testing.T, err error, ok bool, got any) {
	t.Helper()
	if err != nil || !ok {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	const free = "127.0.0.1:1" // a freed port may be somebody else's a moment later
	socket := socketPath(t)
	for where, cfg := range map[string]client.Config{socket: {Socket: socket}, free: {URL: "http://" + free, Token: "secret"}} {
		_, err := client.Dial(t.Context(), cfg)
		if !errors.Is(err, client.ErrNoServer) || !strings.Contains(err.Error(), where) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", where, err)
		}
	}
	for _, bad := range []string{"", "127.0.0.1:8047", "ftp://x", "http://", ":"} {
		if _, err := client.Dial(t.Context(), client.Config{URL: bad}); err == nil || errors.Is(err, client.ErrNoServer) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

const anothersSocket = "CLIENT_TEST_SOCKET"

// A socket that may not be opened says nothing about whether a server runs.
func TestSocketOfAnotherUser(t *testing.T) {
	if socket := os.Getenv(anothersSocket); socket != "" { // this is the other user
		_, err := client.Dial(t.Context(), client.Config{Socket: socket})
		want := "the socket " + socket + " belongs to another user: run this as that user"
		if !errors.Is(err, client.ErrNotPermitted) || errors.Is(err, client.ErrNoServer) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v", err)
		}
		return
	}
	t.Parallel()
	socket := socketPath(t)
	apitest.Start(t, apitest.Config(&apitest.Backend{}, socket))
	dir := filepath.Dir(socket)
	program := filepath.Join(dir, "client.test")
	// Not by this process: a child being forked would hold the copy open for writing, and so keep it from being run.
	if out, err := exec.Command("cp", os.Args[0], program).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, program: 0o755, socket: 0} { // 0: closed to its owner, too
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "-test.run=^TestSocketOfAnotherUser$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), anothersSocket+"="+socket)
	if os.Geteuid() == 0 { // root may open every socket
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	b := &apitest.Backend{}
	socket := socketPath(t)
	cfg := apitest.Config(b, socket)
	cfg.Token = "secret"
	server, _ := apitest.Start(t, cfg)
	c := dial(t, client.Config{Socket: socket})
	_, err := c.GetTask(t.Context(), "demo-1")
	problem(t, err, http.StatusNotFound, "not_found")
	_, err = c.GetRun(t.Context(), uuid.New())
	problem(t, err, http.StatusNotFound, "not_found")
	_, err = c.CreateTask(t.Context(), api.NewTask{})
	problem(t, err, http.StatusUnprocessableEntity, "invalid")
	if got, _ := errors.AsType[*client.ProblemError](err); len(got.Fields) != 2 || got.RequestID == "" {
		t.Errorf("got %+v", got)
	}
	b.SetChecks(api.Check{Name: "database", Status: httpapi.CheckFailed, Code: new("database_unreachable")})
	_, err = c.Readiness(t.Context())
	problem(t, err, http.StatusServiceUnavailable, "not_ready")
	if got, _ := errors.AsType[*client.ProblemError](err); len(got.Checks) != 1 {
		t.Errorf("got %+v", got)
	}
	wrong := dial(t, client.Config{URL: "http://" + server.Addr(), Token: "wrong"})
	_, err = wrong.ListJobs(t.Context(), api.ListJobsParams{})
	problem(t, err, http.StatusUnauthorized, "unauthorized")
}

func problem(t *testing.T, err error, status int, code string) {
	t.Helper()
	got, ok := errors.AsType[*client.ProblemError](err)
	if !ok || got.Status != status || got.Code != code || got.Detail == "" {
		t.Fatalf("got %v (%+v), want %d %s", err, got, status, code)
	}
}

func TestAnswersThatAreNotOrchs(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"a page":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
		"an error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) },
		"cut off":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(answer)
			defer server.Close()
			_, err := client.Dial(t.Context(), client.Config{URL: server.URL})
			if err == nil || errors.Is(err, client.ErrNoServer) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	if _, err := client.Dial(t.Context(), client.Config{URL: server.URL, Timeout: time.Millisecond}); err == nil {
		t.Error("a server that never answers answered")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the person pressed ^C"))
	if _, err := client.Dial(ctx, client.Config{URL: server.URL}); err == nil || !strings.Contains(err.Error(), "^C") {
		t.Errorf("got %v", err)
	}
}
