package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"orch/api"
)

// Tasks is what the task routes need. Methods return a RefusedError for what a client can get wrong.
type Tasks interface {
	// ListTasks returns at most filter.Limit tasks, newest first.
	ListTasks(ctx context.Context, filter TaskFilter) ([]api.Task, error)
	// GetTask returns the task, its job, its newest runs and its newest events.
	GetTask(ctx context.Context, key string) (api.TaskDetail, error)
	// TaskEvents returns at most filter.Limit events, oldest first.
	TaskEvents(ctx context.Context, key string, filter EventFilter) ([]api.TaskEvent, error)
	// CreateTask adds a task and its first job. The fields are well-formed; whether they name something is checked here.
	CreateTask(ctx context.Context, task NewTask) (api.Task, error)
	// CancelTask cancels a task on behalf of actor.
	CancelTask(ctx context.Context, key, actor string) (api.Task, error)
	// RetryTask lets a blocked task go on; note is told to the agent.
	RetryTask(ctx context.Context, key, actor, note string) (api.Task, error)
	// AnswerTask lets a task go on whose agent has asked something.
	AnswerTask(ctx context.Context, key, actor, answer string) (api.Task, error)
	// RevertTask adds a task that takes back what a task has landed.
	RevertTask(ctx context.Context, key, actor string) (api.Task, error)
	// Salvages returns what was kept of the task's work, oldest first.
	Salvages(ctx context.Context, key string) ([]api.Salvage, error)
	// RestoreTask puts what was kept of the task's work on a branch of its repository.
	RestoreTask(ctx context.Context, key, actor string, r Restore) (api.Restored, error)
}

// Restore says what is to be restored, and where.
type Restore struct {
	Salvage int    // number; 0 = the newest
	Branch  string // "" = one named after the task and the salvage
}

// TaskFilter selects tasks. Zero values select everything.
type TaskFilter struct {
	States []api.TaskState
	Repo   string
	Before int64 // tasks with a smaller id only; 0 = from the newest on
	Limit  int
}

// EventFilter selects events of one task.
type EventFilter struct {
	After int64 // events with a greater id only
	Limit int
}

// NewTask is a task to add.
type NewTask struct {
	Repo       string // name of a configured repository; may be empty with Adhoc
	Title      string
	Body       string
	Base       string // empty = the repository's own
	Priority   int
	MaxCostUSD *float64 // nil = as orch.yaml says
	Land       *bool    // nil = as the repository says
	Source     string   // "cli" over the socket, else "api"
	Adhoc      *Adhoc   // only ever set for the operator
}

// Adhoc is what a task brings in place of an entry in orch.yaml. Exactly one of TestCommand and NoTest is set, and at
// most one of Agent and AgentCommand.
type Adhoc struct {
	Path         string // absolute
	TestCommand  string
	NoTest       bool
	Agent        string
	AgentCommand string
	AgentEnv     []string // names of variables to pass on to the agent
	Setup        string
	Timeout      time.Duration // 0 = default
}

// Jobs is what the job routes need.
type Jobs interface {
	// ListJobs returns at most filter.Limit jobs, newest first.
	ListJobs(ctx context.Context, filter JobFilter) ([]api.Job, error)
	GetJob(ctx context.Context, id int64) (api.Job, error)
	// CancelJob cancels a queued job at once and asks a running one to stop.
	CancelJob(ctx context.Context, id int64, actor string) (api.Job, error)
	// RetryJob queues a job that failed or was cancelled once more.
	RetryJob(ctx context.Context, id int64, actor string) (api.Job, error)
	// Pause holds jobs back until Resume; again means with a new reason. Whether the name exists is checked here.
	Pause(ctx context.Context, pause NewPause) (api.Pause, error)
	// Resume ends a pause, and says whether there was one.
	Resume(ctx context.Context, what Held) (was bool, err error)
}

// Held names what a pause holds back: a lane, a repository or an agent.
type Held struct {
	Scope api.PauseScope
	Name  string
}

// NewPause is a pause to begin.
type NewPause struct {
	Held
	Reason string
	Actor  string // "cli" over the socket, else "api"
}

// JobFilter selects jobs. Zero values select everything.
type JobFilter struct {
	State  api.JobState
	Task   string // key
	Before int64  // jobs with a smaller id only; 0 = from the newest on
	Limit  int
}

// RunFilter selects runs of one task. Zero values select everything.
type RunFilter struct {
	Job    int64
	Before uuid.UUID // runs older than this one only
	Limit  int
}

// Runs is what the run routes need.
type Runs interface {
	// ListRuns returns at most filter.Limit runs of a task, newest first.
	ListRuns(ctx context.Context, key string, filter RunFilter) ([]api.Run, error)
	GetRun(ctx context.Context, id uuid.UUID) (api.Run, error)
	// LogBounds returns the offsets of the oldest byte that is left and of the end of the log.
	LogBounds(ctx context.Context, id uuid.UUID) (first, end int64, err error)
	// ReadLog returns at most limit bytes from offset on, or from the oldest byte left; nothing at the end of the log.
	ReadLog(ctx context.Context, id uuid.UUID, offset int64, limit int) (LogPart, error)
	// FollowLog gives every byte from offset on to emit, in order, as it is written, and returns once the run has ended
	// and all was given. It returns early when ctx ends or emit returns an error. The bytes are emit's until it returns.
	FollowLog(ctx context.Context, id uuid.UUID, offset int64, emit func(LogPart) error) (RunEnd, error)
}

// Agents is what the route of the agents needs.
type Agents interface {
	// ListAgents returns all agents by name, and what all have used today.
	ListAgents(ctx context.Context) (api.AgentList, error)
}

// LogPart is a piece of a log.
type LogPart struct {
	Offset int64 // of its first byte
	Data   []byte
}

// RunEnd says how a run ended.
type RunEnd struct {
	Ended      string // exited, timeout, …
	ExitCode   *int
	Signal     string
	Outcome    string
	FinishedAt *time.Time
}

// QueueSource builds what GET /queue shows. Slices and maps may be nil; Snapshot is filled in by this package.
type QueueSource interface {
	Queue(ctx context.Context) (api.Queue, error)
}

// Readiness looks at the parts that have to work. It returns one check for each, within the time that ctx leaves.
type Readiness interface {
	Check(ctx context.Context) []api.Check
}

// States of a Check.
const (
	CheckOK     = "ok"
	CheckOff    = "off"
	CheckFailed = "failed"
)
