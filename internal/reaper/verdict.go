package reaper

import (
	"time"

	"orch/internal/process"
)

// Life is what can be said of the run that pins a job.
type Life string

// The lives of a run.
const (
	RunNone        Life = ""            // no run pins the job
	RunAlive       Life = "alive"       // or its shim may still come
	RunFinished    Life = "finished"    // it left a record, or its end is noted
	RunDead        Life = "dead"        // neither shim nor record, seen from where it ran
	RunInterrupted Life = "interrupted" // its boot or pid namespace seems gone; package agent knows, and notes it
	RunUnknown     Life = "unknown"     // another root's, or its lock can't be examined
)

// Reason is why a job is taken from its worker, or a run ended.
type Reason string

// The reasons, as the log, GET /queue and alerts show them.
const (
	ReasonWorkerDead  Reason = "worker_dead"   // the process that holds the job is gone
	ReasonExpired     Reason = "lease_expired" // it doesn't beat any more
	ReasonRunFinished Reason = "run_finished"  // its handler doesn't go on although the run has ended
	ReasonProcessDead Reason = "process_dead"  // the run died without a record
	ReasonCeiling     Reason = "ceiling"       // it goes on for longer than anything may
)

// Action is what is to be done about a job.
type Action string

// The actions.
const (
	Leave   Action = "leave"   // it lives
	Suspect Action = "suspect" // it can't be judged
	Release Action = "release" // give it on, with its attempt and its run
	Spend   Action = "spend"   // end the attempt, and the run with it
	End     Action = "end"     // end the run; its handler does the rest
)

// Evidence is what one look at a running job has found.
type Evidence struct {
	// Worker is the process that holds the job. A worker whose row is gone is unknown.
	Worker process.Verdict
	// Expired means that the lease has run out by the database's clock, or that its holder said goodbye.
	Expired bool
	Run     Life
	// Own means that the run is of this process's data root, Here that it is of this boot and pid namespace too.
	Own, Here bool
	// Following means that by its phase the handler waits for the run.
	Following bool
	// Elapsed is for how long the run has gone on, or without one that does the job since its grant or its last run's end.
	// Nothing goes on for longer than Ceiling; zero: there is none.
	Elapsed, Ceiling time.Duration
}

// Verdict is what follows from it.
type Verdict struct {
	Do     Action
	Reason Reason
	// Counted means that it must be found by several ticks in a row before anything is done.
	Counted bool
}

// lost is the verdict on a lease alone. It is counted beside any other: what is held by nobody is given on although the
// run looks different at each tick.
func lost() Verdict { return Verdict{Release, ReasonExpired, true} }

// Judge is the table of doc.go, row by row (ORCH-065 FR-1, FR-1.3).
func Judge(e Evidence) Verdict {
	past := e.Ceiling > 0 && e.Elapsed > e.Ceiling
	switch {
	case e.Worker == process.Dead:
		return Verdict{Release, ReasonWorkerDead, false}
	case e.Run == RunDead && e.Here:
		return Verdict{Spend, ReasonProcessDead, true}
	case past && e.Run == RunAlive && e.Here:
		return Verdict{End, ReasonCeiling, false}
	case past && e.Run == RunUnknown && e.Own:
		return Verdict{Spend, ReasonCeiling, false}
	case past && e.Run == RunNone && !e.Expired:
		return Verdict{Spend, ReasonCeiling, false}
	case e.Expired:
		return lost()
	case past && e.Run == RunFinished:
		return Verdict{Release, ReasonCeiling, false}
	case e.Run == RunFinished && e.Following:
		return Verdict{Release, ReasonRunFinished, true}
	case e.Run == RunUnknown, e.Run == RunInterrupted, e.Run == RunDead:
		return Verdict{Do: Suspect}
	default:
		return Verdict{Do: Leave} // a worker that can't be seen, but beats, lives
	}
}
