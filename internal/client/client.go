// Package client talks to a running server: typed calls over the unix socket of a data root, or over HTTP with a
// token. It is what the commands of orch use, so that a command and a program of somebody else's see the same thing.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"orch/api"
)

var (
	// ErrNoServer says that nobody answers at the address.
	ErrNoServer = errors.New("no server is running")
	// ErrNotPermitted says that the server's socket may not be opened: a server may well be running.
	ErrNotPermitted = errors.New("run this as that user")
)

// maxAnswer bounds what an answer may hold.
const maxAnswer = 64 << 20

// ProblemError is a refusal by the server.
type ProblemError struct {
	Status    int
	Code      string
	Detail    string
	RequestID string
	Fields    []api.FieldError
	Checks    []api.Check
}

// Error is what a person should read.
func (e *ProblemError) Error() string {
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		return fmt.Sprintf("%s (%s, request %s)", e.Detail, e.Code, e.RequestID)
	}
	return fmt.Sprintf("%s (%s)", e.Detail, e.Code)
}

// Config says where the server is: a socket, or a URL with a token.
type Config struct {
	Socket string // path of the unix socket; wins over URL
	URL    string // e.g. http://127.0.0.1:8047
	Token  string
	// Timeout bounds one call; streams aren't bounded. 0 = 30 s.
	Timeout time.Duration
	// MaxOutage is how long FollowLog goes on trying while nobody answers. 0 = 2 min.
	MaxOutage time.Duration
	// OnOutage is called once for each time that FollowLog finds nobody to go on with, when it begins to wait. Nil: nobody is
	// told.
	OnOutage func(error)
}

// Client talks to one server.
type Client struct {
	api       *api.Client
	transport *http.Transport
	where     string
	bySocket  bool
	timeout   time.Duration
	maxOutage time.Duration
	onOutage  func(error)
}

// Dial makes a client and checks that a server answers; ErrNoServer if none does,
// ErrNotPermitted if the socket is another user's.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.Health(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func newClient(cfg Config) (*Client, error) {
	c := &Client{timeout: cfg.Timeout, maxOutage: cfg.MaxOutage, onOutage: cfg.OnOutage, where: cfg.URL}
	if c.timeout == 0 {
		c.timeout = 30 * time.Second
	}
	if c.maxOutage == 0 {
		c.maxOutage = 2 * time.Minute
	}
	if c.onOutage == nil {
		c.onOutage = func(error) {}
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	c.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: c.timeout, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4,
	}
	base := cfg.URL
	if cfg.Socket != "" {
		base, c.where, c.bySocket = "http://localhost", cfg.Socket, true
		c.transport.Proxy = nil
		c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", cfg.Socket)
		}
	}
	if parsed, err := url.Parse(base); err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return nil, errors.New("connect to the server: the address must be like http://127.0.0.1:8047")
	}
	httpClient := &http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would carry the token along
	}
	authorize := func(_ context.Context, r *http.Request) error {
		if cfg.Token != "" && cfg.Socket == "" {
			r.Header.Set("Authorization", "Bearer "+cfg.Token)
		}
		return nil
	}
	generated, err := api.NewClient(base, api.WithHTTPClient(httpClient), api.WithRequestEditorFn(authorize))
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	c.api = generated
	return c, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Health returns nil if the server answers.
func (c *Client) Health(ctx context.Context) error {
	_, err := call[api.Health](ctx, c, "ask for the server's health", func(ctx context.Context) (*http.Response, error) { return c.api.GetHealth(ctx) })
	return err
}

// Readiness returns the checks. A server that isn't ready answers a *ProblemError with code not_ready and the Checks.
func (c *Client) Readiness(ctx context.Context) (api.Readiness, error) {
	return call[api.Readiness](ctx, c, "ask whether the server is ready", func(ctx context.Context) (*http.Response, error) { return c.api.GetReadiness(ctx) })
}

// Queue returns the snapshot.
func (c *Client) Queue(ctx context.Context) (api.Queue, error) {
	return call[api.Queue](ctx, c, "get the queue", func(ctx context.Context) (*http.Response, error) { return c.api.GetQueue(ctx) })
}

// ListTasks returns a page of tasks.
func (c *Client) ListTasks(ctx context.Context, params api.ListTasksParams) (api.TaskList, error) {
	return call[api.TaskList](ctx, c, "list tasks", func(ctx context.Context) (*http.Response, error) { return c.api.ListTasks(ctx, &params) })
}

// CreateTask adds a task.
func (c *Client) CreateTask(ctx context.Context, task api.NewTask) (api.Task, error) {
	return call[api.Task](ctx, c, "add the task", func(ctx context.Context) (*http.Response, error) { return c.api.CreateTask(ctx, task) })
}

// GetTask returns all about a task.
func (c *Client) GetTask(ctx context.Context, key string) (api.TaskDetail, error) {
	return call[api.TaskDetail](ctx, c, "get the task", func(ctx context.Context) (*http.Response, error) { return c.api.GetTask(ctx, key) })
}

// TaskEvents returns a page of a task's events.
func (c *Client) TaskEvents(ctx context.Context, key string, params api.ListTaskEventsParams) (api.TaskEventList, error) {
	return call[api.TaskEventList](ctx, c, "list the task's events", func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTaskEvents(ctx, key, &params)
	})
}

// CancelTask cancels a task.
func (c *Client) CancelTask(ctx context.Context, key string) (api.Task, error) {
	return call[api.Task](ctx, c, "cancel the task", func(ctx context.Context) (*http.Response, error) { return c.api.CancelTask(ctx, key) })
}

// RetryTask lets a blocked task go on; note is told to the agent.
func (c *Client) RetryTask(ctx context.Context, key, note string) (api.Task, error) {
	body := api.RetryTask{}
	if note != "" {
		body.Note = &note
	}
	return call[api.Task](ctx, c, "retry the task", func(ctx context.Context) (*http.Response, error) { return c.api.RetryTask(ctx, key, body) })
}

// AnswerTask answers what the agent of a task has asked.
func (c *Client) AnswerTask(ctx context.Context, key, answer string) (api.Task, error) {
	return call[api.Task](ctx, c, "answer the task", func(ctx context.Context) (*http.Response, error) {
		return c.api.AnswerTask(ctx, key, api.AnswerTask{Answer: answer})
	})
}

// RevertTask adds a task that takes back what a task has landed.
func (c *Client) RevertTask(ctx context.Context, key string) (api.Task, error) {
	return call[api.Task](ctx, c, "revert the task", func(ctx context.Context) (*http.Response, error) { return c.api.RevertTask(ctx, key) })
}

// Salvages returns what was kept of a task's work.
func (c *Client) Salvages(ctx context.Context, key string) (api.SalvageList, error) {
	return call[api.SalvageList](ctx, c, "list what was kept of the task", func(ctx context.Context) (*http.Response, error) {
		return c.api.ListSalvages(ctx, key)
	})
}

// RestoreTask puts what was kept of a task's work on a branch.
func (c *Client) RestoreTask(ctx context.Context, key string, r api.RestoreTask) (api.Restored, error) {
	return call[api.Restored](ctx, c, "restore the task's work", func(ctx context.Context) (*http.Response, error) {
		return c.api.RestoreTask(ctx, key, r)
	})
}

// ListJobs returns a page of jobs.
func (c *Client) ListJobs(ctx context.Context, params api.ListJobsParams) (api.JobList, error) {
	return call[api.JobList](ctx, c, "list jobs", func(ctx context.Context) (*http.Response, error) { return c.api.ListJobs(ctx, &params) })
}

// GetJob returns a job.
func (c *Client) GetJob(ctx context.Context, id int64) (api.Job, error) {
	return call[api.Job](ctx, c, "get the job", func(ctx context.Context) (*http.Response, error) { return c.api.GetJob(ctx, id) })
}

// CancelJob cancels a job, or asks its worker to.
func (c *Client) CancelJob(ctx context.Context, id int64) (api.Job, error) {
	return call[api.Job](ctx, c, "cancel the job", func(ctx context.Context) (*http.Response, error) { return c.api.CancelJob(ctx, id) })
}

// RetryJob gives a job that failed or was cancelled another attempt.
func (c *Client) RetryJob(ctx context.Context, id int64) (api.Job, error) {
	return call[api.Job](ctx, c, "retry the job", func(ctx context.Context) (*http.Response, error) { return c.api.RetryJob(ctx, id) })
}

// ListAgents returns the agents, and what they have used today.
func (c *Client) ListAgents(ctx context.Context) (api.AgentList, error) {
	return call[api.AgentList](ctx, c, "list agents", func(ctx context.Context) (*http.Response, error) { return c.api.ListAgents(ctx) })
}

// Pause lets nothing new begin in a lane, for a repository or by an agent.
func (c *Client) Pause(ctx context.Context, pause api.PauseRequest) (api.Pause, error) {
	return call[api.Pause](ctx, c, "pause", func(ctx context.Context) (*http.Response, error) { return c.api.Pause(ctx, pause) })
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, what api.ResumeRequest) (api.Resumed, error) {
	return call[api.Resumed](ctx, c, "resume", func(ctx context.Context) (*http.Response, error) { return c.api.Resume(ctx, what) })
}

// ListTaskRuns returns a page of a task's runs, newest first.
func (c *Client) ListTaskRuns(ctx context.Context, key string, params api.ListTaskRunsParams) (api.RunList, error) {
	return call[api.RunList](ctx, c, "list the task's runs", func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTaskRuns(ctx, key, &params)
	})
}

// GetRun returns a run.
func (c *Client) GetRun(ctx context.Context, id uuid.UUID) (api.Run, error) {
	return call[api.Run](ctx, c, "get the run", func(ctx context.Context) (*http.Response, error) { return c.api.GetRun(ctx, id) })
}

// call sends one request and decodes its answer.
func call[T any](ctx context.Context, c *Client, doing string, send func(context.Context) (*http.Response, error)) (T, error) {
	var answer T
	body, _, err := c.do(ctx, doing, send)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("%s: the answer isn't one of orch's: %w", doing, err)
	}
	return answer, nil
}

func (c *Client) do(ctx context.Context, doing string, send func(context.Context) (*http.Response, error)) (body []byte, header http.Header, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errors.New("the server took too long"))
	defer cancel()
	response, err := send(ctx)
	if err != nil {
		return nil, nil, c.explain(ctx, doing, err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, c.explain(ctx, doing, err)
	}
	if len(body) > maxAnswer {
		return nil, nil, fmt.Errorf("%s: the answer is too long", doing)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, nil, fmt.Errorf("%s: %w", doing, problemOf(response, body))
	}
	return body, response.Header, nil
}

// explain tells a server that couldn't be reached from one that broke off: only in the first case nothing can have
// happened.
func (c *Client) explain(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		if c.bySocket && errors.Is(op.Err, fs.ErrPermission) {
			return fmt.Errorf("%s: the socket %s belongs to another user: %w", doing, c.where, ErrNotPermitted)
		}
		return fmt.Errorf("%s: %w at %s: %w", doing, ErrNoServer, c.where, op.Err)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // it repeats method and address
		err = wrapped.Err
	}
	return fmt.Errorf("%s: the server at %s broke off: %w", doing, c.where, err)
}

func problemOf(response *http.Response, body []byte) error {
	var problem api.Problem
	kind := response.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "application/problem+json") || json.Unmarshal(body, &problem) != nil || problem.Code == "" {
		return &ProblemError{Status: response.StatusCode, Code: "unexpected_answer", Detail: "the server answered " + response.Status}
	}
	failed := &ProblemError{Status: response.StatusCode, Code: problem.Code, Detail: problem.Detail}
	if problem.RequestID != nil {
		failed.RequestID = *problem.RequestID
	}
	if problem.Errors != nil {
		failed.Fields = *problem.Errors
	}
	if problem.Checks != nil {
		failed.Checks = *problem.Checks
	}
	return failed
}
