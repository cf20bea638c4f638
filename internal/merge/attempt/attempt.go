// Package attempt keeps the landings of tasks, step by step. It knows the database only; what a landing does is in package merge.
package attempt

import (
	"time"

	"orch/internal/merge/lease"
)

// Step is how far a landing has come.
type Step string

// The steps of a landing; the last three end it.
const (
	StepQueued    Step = "queued"
	StepPreparing Step = "preparing"
	StepTesting   Step = "testing"
	StepReady     Step = "ready"
	StepLanding   Step = "landing" // the intent is written: the target may have moved
	StepLanded    Step = "landed"  // the target has moved
	StepFinalised Step = "finalised"
	StepParked    Step = "parked"
	StepReturned  Step = "returned"
)

// Intended says that the landing can't be called off any more.
func (s Step) Intended() bool { return s == StepLanding || s == StepLanded }

// Ended says that the landing is over, however it went.
func (s Step) Ended() bool { return s == StepFinalised || s == StepParked || s == StepReturned }

// Tries counts what a landing met, each class of problems apart.
type Tries struct {
	Moved   int // the target or the head moved under it
	Later   int // time may cure it
	Refused int // a person has to change something
}

// Attempt is one landing of one task.
type Attempt struct {
	ID         int64
	TaskID     int64
	Key        string // of the task
	JobID      int64
	Repo       string
	Target     string
	Branch     string
	Step       Step
	Method     string
	BaseOld    string
	HeadSHA    string
	LandSHA    string
	LandTree   string
	TipSHA     string // what the target moves to: LandSHA, or the last commit of its group
	TipTree    string
	Definition string
	EvidenceID int64
	LeaseEpoch int64
	Group      int64 // the attempt that leads its group; 0: it is alone
	Most       int   // after a red group: the largest that it may be tested in; 0: any
	Reds       int   // how often the group that it leads was red as it is
	Tries
	LastError string
	Offered   bool          // the head is refs/orch/head/KEY of the repository
	Refreshed bool          // checkouts of the target show the landing
	Wait      time.Duration `db:"-"` // until the next look; written only
}

// Turn is the attempt as it stands in the line of its target.
func (a Attempt) Turn() lease.Turn {
	return lease.Turn{
		Attempt: a.ID, TaskID: a.TaskID, Repo: a.Repo, Target: a.Target, Branch: a.Branch, Intended: a.Step.Intended(),
	}
}

// SameKey says that a test's result for one attempt holds for the other: same commits, same base, same definition.
func (a Attempt) SameKey(b Attempt) bool {
	return a.TipSHA != "" && a.TipSHA == b.TipSHA && a.TipTree == b.TipTree && a.LandSHA == b.LandSHA && a.BaseOld == b.BaseOld &&
		a.Definition == b.Definition
}
