package merge

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// ErrSuperseded is what Tasks.IntentTx answers when the task isn't at the stage and round of the merge job any
// more, or was cancelled: the landing ends without a trace in the repository.
var ErrSuperseded = errors.New("the task has moved on")

// Task is what a landing needs to know of a task.
type Task struct {
	ID         int64
	Key        string
	Repo       string
	Location   string // of the repository, as the task was made for it
	Title      string
	Branch     string // its branch's short name, e.g. orch/demo-7
	BaseBranch string
	Root       uuid.UUID // data root whose mirror has its branch; zero = whichever works on it
	Head       string    // commit that the gates of its last passed stage judged: only this one lands; "" = unknown
	Stage      string
	Round      int
	Priority   int
	Land       bool // false: stop at a green branch that a person lands
	Open       bool // false: done or cancelled
}

// Tasks is the part of the task store that a landing needs. The methods that take a transaction do their part of
// a transition in it: task row, event, follow-up jobs. Unless said otherwise they leave the merge job alone: the
// handler ends it with l.CompleteTx after the call, in the same transaction.
type Tasks interface {
	// Load returns the task, or ErrSuperseded when there is none.
	Load(ctx context.Context, id int64) (Task, error)
	// IntentTx locks the task's row and confirms that it is still open and at t's stage and round; ErrSuperseded
	// if not. Whoever cancels locks the same row and then asks LandingStartedTx, so that one of the two wins.
	IntentTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task) error
	// LandedTx ends the task as done, or moves it on to what follows a landing. A follow-up job that shares the
	// task's dedupe key needs the merge job to end first: then LandedTx calls l.CompleteTx itself and answers true.
	LandedTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, landed Landed) (ended bool, err error)
	// ReturnTx sends the task back to its author stage with what went wrong. It ends the merge job itself, with
	// l.CompleteTx, because the next stage's job shares the task's dedupe key and may only follow this one's end.
	ReturnTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, r Return) error
	// BlockTx parks the task as blocked, for a person.
	BlockTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, code, reason string) error
	// ReadyTx leaves the task waiting for a person who lands the published branch.
	ReadyTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, r Ready) error
}

// Landed says how a task's work came to be on its target branch.
type Landed struct {
	Commit   string // the commit in the target's history; "" when there is nothing to land
	Target   string
	Upstream bool // the work was there already: nothing was landed by this job
	Nothing  bool // the work changes nothing
}

// Return says why a task goes back to its author stage.
type Return struct {
	Code     string // problem.Conflict or problem.TestRed
	Reason   string // one sentence
	Feedback string // for the next prompt: paths, or the end of the test's output
}

// Ready names the tested commit that a person may land.
type Ready struct {
	Commit string
	Branch string // under which it was published in the repository
	Target string
}

// Definition is how a task's work is to be landed, taken from the server's configuration, never from a branch. An open
// intent needs none: what was settled with it is in the attempt.
type Definition struct {
	Repo   forge.Repo // Location is what the mirror fetches
	Target string     // target branch
	Method string     // a git.Method; empty means git.Rebase
	Batch  int        // how many may be tested and landed together; 0 = 1
	Test   string     // hash of the test's definition: commands, set-up, time limit
	Land   bool       // false: stop at a green branch that a person lands
	Home   bool       // no other data root knows the repository: the landing stays in the task's own
}

// settled is what was settled with an intent: enough to bring it to its end, whatever the catalogue says by now.
func settled(a attempt.Attempt, t Task) Definition {
	return Definition{
		Repo:   forge.Repo{Name: a.Repo, Location: t.Location, Base: a.Target},
		Target: a.Target, Method: a.Method, Test: a.Definition, Land: true,
	}
}

// Catalog finds the definition for a task.
type Catalog interface {
	Definition(ctx context.Context, t Task) (Definition, error)
}

// TestRequest names the commit to test.
type TestRequest struct {
	TaskID     int64
	TaskKey    string
	Repo       string
	Stage      string
	Round      int
	Commit     string // exactly this one is tested: the task's, or that of its group
	Tree       string
	BaseCommit string // the target's commit that Commit stands on
}

// TestResult is a completed test.
type TestResult struct {
	Green      bool
	Reason     string
	OutputTail string
	EvidenceID int64 // row of the evidence; 0 when none was kept, and then a re-drive asks again
	Reused     bool
}

// Tester runs the test of a landing. It is re-entrant: asked again for the same task and commit it follows the
// run that it began, or gives the result that it kept; green evidence for the same tree and definition is reused.
//
// An error is no result: queue.ErrStopping when this process stops (the run goes on), queue.ErrCancelRequested
// after it ended the run, *queue.SnoozeError while it waits for something, anything else is tried again later.
// When ctx ends for another cause it leaves the run alone and returns.
type Tester interface {
	Test(ctx context.Context, l *queue.Lease, r TestRequest) (TestResult, error)
}

// untested sorts what a Tester returned instead of a result: the queue's own answers go on as they are.
func untested(err error) error {
	var snooze *queue.SnoozeError
	switch {
	case errors.Is(err, queue.ErrStopping), errors.Is(err, queue.ErrCancelRequested),
		errors.Is(err, queue.ErrLeaseLost), errors.Is(err, lease.ErrLost), errors.As(err, &snooze):
		return err
	case db.Unreachable(err):
		return fmt.Errorf("test the landing: %w", err)
	}
	return problem.Of(problem.Test, err)
}
