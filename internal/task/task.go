package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// State of a task.
type State string

// The states. Active tasks have exactly one live job; the others have none that moves them.
const (
	Active    State = "active"
	Waiting   State = "waiting"
	Blocked   State = "blocked"
	Done      State = "done"
	Cancelled State = "cancelled"
)

// Ended says that nothing moves the task any more, not even a person's retry.
func (s State) Ended() bool { return s == Done || s == Cancelled }

// PersonLands is what a task waits for when its repository leaves the landing to a person.
const PersonLands = "person_lands"

// Reason codes of blocked tasks. Others come from jobs.
const (
	CodeNeedsInput      = "needs_input"
	CodeRoundsExhausted = "rounds_exhausted"
	CodeStageUnknown    = "stage_unknown"
)

// Reason codes of tasks that are done without a landing of orch's.
const (
	CodeAlreadyUpstream = "already_upstream" // the target had the change
	CodeNothingToLand   = "nothing_to_land"  // there is no change
)

// System is the actor of what orch does by itself.
const System = "orch"

// Kinds and lanes of the jobs that move a task.
const (
	KindStage  = "stage"
	KindMerge  = "merge"
	KindRetire = "retire"
	LaneAgents = "agents"
	LaneMerge  = "merge"
	LaneSystem = "system"
)

// CounterLanded is the queue's counter of landings since the database was made.
const CounterLanded = "landed_total"

// Errors of the store.
var (
	ErrNotFound        = errors.New("no such task")
	ErrEnded           = errors.New("the task has ended already")
	ErrLandingStarted  = errors.New("the landing of the task has started: it can't be cancelled any more")
	ErrNotBlocked      = errors.New("the task isn't blocked")
	ErrNotAsking       = errors.New("the task doesn't ask anything")
	ErrBusy            = errors.New("another job of the task hasn't ended yet")
	ErrUnknownPipeline = errors.New("unknown pipeline")
)

// InvalidError says which field of an Add can't be taken, and why.
type InvalidError struct{ Field, Reason string }

func (e *InvalidError) Error() string { return fmt.Sprintf("%s %s", e.Field, e.Reason) }

// Task is one work item.
type Task struct {
	ID           int64           `db:"id"`
	Key          string          `db:"key"`
	Repo         string          `db:"repo"`
	Location     string          `db:"location"` // of the repository
	Title        string          `db:"title"`
	Body         string          `db:"body"`
	Source       string          `db:"source"` // forge, api or cli
	Branch       string          `db:"branch"`
	BaseBranch   string          `db:"base_branch"`
	PullRequest  *int64          `db:"pull_request"`
	Pipeline     string          `db:"pipeline"`
	Stage        string          `db:"stage"`
	State        State           `db:"state"`
	WaitingFor   string          `db:"waiting_for"`
	ReasonCode   string          `db:"reason_code"`
	Reason       string          `db:"reason"`
	Round        int             `db:"round"`
	Feedback     string          `db:"feedback"` // what the next prompt says about the last red gate
	Priority     int             `db:"priority"`
	MaxCostUSD   *float64        `db:"max_cost_usd"` // what its runs may cost together; nil = what orch.yaml says
	Land         bool            `db:"land"`         // false: a person lands the ready branch
	Overrides    json.RawMessage `db:"overrides"`
	RootID       *uuid.UUID      `db:"root_id"`       // data root that has its branch and workspace; nil before any work
	PassedCommit string          `db:"passed_commit"` // what the gates of its last finished stage judged
	LandedCommit string          `db:"landed_commit"`
	CreatedAt    time.Time       `db:"created_at"`
	UpdatedAt    time.Time       `db:"updated_at"`
	FinishedAt   *time.Time      `db:"finished_at"`
}

const taskColumns = `t.id, t.key, t.repo, r.location, t.title, t.body, t.source, t.branch, t.base_branch, t.pull_request,
	t.root_id, coalesce(t.passed_commit, '') as passed_commit, t.pipeline, t.stage, t.state, coalesce(t.waiting_for, '') as waiting_for, coalesce(t.reason_code, '') as reason_code,
	coalesce(t.reason, '') as reason, t.round, t.feedback, t.priority, t.max_cost_usd::float8 as max_cost_usd, t.land, t.overrides,
	coalesce(t.landed_commit, '') as landed_commit, t.created_at, t.updated_at, t.finished_at`

const taskTables = ` from tasks t join repositories r on r.name = t.repo `

// Ready says that the task's tested branch was published for a person to land.
func (t Task) Ready() bool { return t.State == Waiting && t.WaitingFor == PersonLands }

// At is the place of a task that a transition starts from. A transition whose task is somewhere else by now changes
// nothing and answers Superseded.
type At struct {
	TaskID int64
	Stage  string
	Round  int
}

// At returns where the task is.
func (t Task) At() At { return At{TaskID: t.ID, Stage: t.Stage, Round: t.Round} }

// JobArgs are the arguments of stage and merge jobs.
type JobArgs struct {
	TaskID int64  `json:"task_id"`
	Stage  string `json:"stage"`
	Round  int    `json:"round"`
}

// At returns the place that the job was made for.
func (a JobArgs) At() At { return At(a) }

// RetireArgs are the arguments of retire jobs.
type RetireArgs struct {
	TaskID int64 `json:"task_id"`
}

// RetireKey is the dedupe key of a task's retire job.
func RetireKey(taskID int64) string { return fmt.Sprintf("retire:%d", taskID) }
