package stage

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// Workspace is where an agent works on a task.
type Workspace struct {
	Dir        string
	BaseCommit string // commit of the base branch that the task's branch starts from
	Kept       bool   // index and tree are as the run before left them
}

// Head is what a task's branch and workspace hold, seen from outside.
type Head struct {
	Commit   string // empty when the branch doesn't exist
	Tree     string
	Base     string   // commit of the base branch that the branch started from
	Upstream bool     // Commit is in the history of the base branch: nothing of the branch's own
	Dirty    []string // paths that Commit doesn't hold, changed or untracked
}

// Workspaces prepares and looks into the workspaces of tasks.
type Workspaces interface {
	// Dir is where the workspace is or will be.
	Dir(t task.Task) string
	// Prepare makes the workspace ready for a new run: there, on the task's branch, index and tree as its head. What
	// would be lost by that is salvaged first. With keep, a workspace that is whole and on the branch stays as it is. It is
	// never called while a run of the task lives. A repository that isn't there for now is an *AwayError.
	Prepare(ctx context.Context, t task.Task, keep bool) (Workspace, error)
	// Inspect imports the task's branch and says what is there. It changes nothing in the workspace. A branch that can't be
	// taken as the agent left it is a *BranchError.
	Inspect(ctx context.Context, t task.Task) (Head, error)
}

// AwayError says that a task's repository isn't there for now. That is nobody's fault, and over when it is back.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() }

// Unwrap returns the error behind it.
func (e *AwayError) Unwrap() error { return e.Err }

// BranchError says that an agent left a workspace from which its branch can't be taken: on another branch, say, with its
// history rewritten, or without a repository. The agent can do something about it.
type BranchError struct {
	Detail string // a sentence, for the agent and for people
	Err    error
}

func (e *BranchError) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the error behind it.
func (e *BranchError) Unwrap() error { return e.Err }

// AgentRun asks for one run of an agent. It is re-entrant by task and key: the newest run whose result wasn't used is
// followed or its result taken, and Prepare is called only before a new one starts.
type AgentRun struct {
	Task  task.Task
	Stage string
	Round int
	Key   string
	Agent string
	Dir   string
	// Prompt is what an agent is told that begins, Continue what one is told whose session goes on.
	Prompt   []byte
	Continue func(prompt.Earlier) ([]byte, error)
	// Prepare makes the workspace ready. With keep it stays as the run before left it, if it can: kept says so.
	Prepare func(ctx context.Context, keep bool) (kept bool, err error)
}

// AgentResult is how an agent's run ended.
type AgentResult struct {
	RunID      uuid.UUID
	Agent      string     // that ran: a fallback, maybe; empty = the stage's
	Outcome    string     // ok, agent_failed, timeout, …
	Retry      RetryClass // what the outcome means for the attempt; empty = spent
	RetryAfter time.Duration
	Summary    string
	Question   string
	Detail     string // the sentence that the outcome was read from
	LogTail    string
	ExitCode   *int
	CostUSD    *float64
	Tokens     int64
	Turns      int
	Resumed    bool
	// Pause is what the run met that holds for every task of its agent; nil = nothing.
	Pause *Pause
	// Fallback is the agent that takes over at once; empty = none.
	Fallback string
	// WaitingFor is what the job waits for until RetryAfter is over; empty = that Pause ends.
	WaitingFor string
}

// Pause holds an agent back for all tasks.
type Pause struct {
	Agent  string
	Code   string    // the outcome behind it
	Until  time.Time // zero = until a person resumes the agent
	Reason string
}

// BlockError says that no agent may work on the task before a person has looked at it.
type BlockError struct {
	Code   string
	Reason string // names what to do
}

func (e *BlockError) Error() string { return e.Code + ": " + e.Reason }

// Agents runs agents. An error is no result: it is returned to the worker as it is, but for a *BlockError.
type Agents interface {
	Run(ctx context.Context, l *queue.Lease, r AgentRun) (AgentResult, error)
}

// RetryClass says what an outcome means for the attempt.
type RetryClass string

// Classes of outcomes.
const (
	RetryNone   RetryClass = "none"   // the run succeeded: the gates decide
	RetrySpent  RetryClass = "spent"  // try again, the attempt is spent
	RetryGiven  RetryClass = "given"  // try again, the attempt is given back: the agent isn't to blame
	RetryNever  RetryClass = "never"  // trying again would change nothing
	RetryAnswer RetryClass = "answer" // a person has to answer first
)

// GateOutcome is what a gate answers.
type GateOutcome string

// Answers of gates.
const (
	GatePass    GateOutcome = "pass"
	GateFail    GateOutcome = "fail"
	GatePending GateOutcome = "pending"
)

// GateSubject is what a gate is asked about.
type GateSubject struct {
	TaskID     int64
	TaskKey    string
	Stage      string
	Round      int
	Commit     string
	Tree       string
	BaseCommit string
	Upstream   bool
	Dirty      []string
}

// GateResult is a gate's answer. The gate keeps its own evidence; EvidenceID names it.
type GateResult struct {
	Name       string
	Outcome    GateOutcome
	Reason     string
	OutputTail string
	ExitCode   *int
	Duration   time.Duration
	Reused     bool
	RunID      *uuid.UUID
	EvidenceID int64
	Until      time.Duration // for pending: when to ask again
	WaitingFor string        // for pending
}

// Gates answers the gates of a stage. An error is no answer: it is returned to the worker as it is.
type Gates interface {
	Check(ctx context.Context, l *queue.Lease, ref flow.GateRef, s GateSubject) (GateResult, error)
}

// Publisher copies a ref from orch's mirror into the task's repository. Repeating it is harmless.
type Publisher interface {
	// Publish returns the name under which the ref is there and in the mirror: another one when the repository has
	// something else under ref.
	Publish(ctx context.Context, t task.Task, ref string) (string, error)
}

// Remains is what a task leaves behind on disk.
type Remains interface {
	// Salvage keeps what the workspace holds beyond its start (untracked files too) as the next of the task's salvages.
	// Nothing there is no error. With onlyDirty, commits of the branch alone are nothing. What the newest salvage has
	// already isn't kept again, so it may be repeated.
	Salvage(ctx context.Context, t task.Task, onlyDirty bool) error
	// Salvages are all that was ever kept of the task, whoever did it, the oldest first.
	Salvages(ctx context.Context, t task.Task) ([]Salvaged, error)
	// Remove deletes workspace and checkouts of the task. Nothing there is no error. The workspace is there as a whole or
	// not at all, so that a repetition never salvages a half of it.
	Remove(ctx context.Context, t task.Task) error
}

// Salvaged is something that was kept of a task.
type Salvaged struct {
	Ref    string // refs/orch/salvage/<key>/<n>
	Commit string
}

// PauseFunc begins a pause, in the transaction that uses the result of the run behind it.
type PauseFunc func(ctx context.Context, tx pgx.Tx, p Pause) error

// ConsumeFunc marks a run's result as used.
type ConsumeFunc func(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error
