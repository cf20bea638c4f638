package sight

import (
	"context"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/ledger"
	"orch/internal/process"
)

// Sight is what one run seemed to be. Durations are by the database's clock, RunningFor of a run of this boot by the boot clock
// too: the shorter one.
type Sight struct {
	// Run is its row. Of one that has ended by it, Process and Status say nothing.
	Run ledger.Run
	// FinishedFor is how long ago its end was noted, RunningFor how long ago it began, if it hasn't ended.
	FinishedFor, RunningFor time.Duration
	// Process says whether the run's shim lives, which ends its program when it does. Unknown is never to be taken for dead;
	// so is an intent that no shim has taken yet, and a run that has a record of its end which isn't noted yet.
	Process process.Verdict
	// Status is what its directory says, with less doubt removed; empty for a run of another root.
	Status process.Status
	// Interrupted says that a dead run was of another boot, or that a foreign one is dead if its pid namespace is.
	Interrupted bool
	// Foreign says that the run is of another root, boot or pid namespace: it can't be ended from here.
	Foreign bool
	// Timeout bounds the run by its own shim; zero: nothing does, or it isn't known here.
	Timeout time.Duration
	// MassDeath says that too many runs seemed dead at once for any to be believed.
	MassDeath bool
}

// Finished says that the end of the run is noted.
func (s Sight) Finished() bool { return s.Run.State == ledger.StateFinished }

// Consumed says that its result was used.
func (s Sight) Consumed() bool { return s.Run.ConsumedAt != nil }

// Rows reads what the table knows of runs, of whatever root. One that isn't there is left out.
func (f Finder) Rows(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Sight, error) {
	aged, err := f.Ledger.Aged(ctx, ids)
	if err != nil {
		return nil, err
	}
	sights := make(map[uuid.UUID]Sight, len(aged))
	for _, run := range aged {
		s := Sight{Run: run.Run, Process: process.Unknown, Foreign: run.RootID != f.Root}
		if s.Finished() {
			s.FinishedFor = run.Age
		} else {
			s.RunningFor = run.Age
		}
		sights[run.ID] = s
	}
	return sights, nil
}

// With is the sight of an unfinished run whose directory seems to be this.
func (f Finder) With(s Sight, st process.State) Sight {
	if s.Foreign || s.Finished() {
		return s
	}
	s.Status, s.Interrupted = st.Status, st.Interrupted
	switch st.Status {
	case process.StatusAlive:
		s.Process = process.Alive
	case process.StatusDead:
		s.Process = process.Dead
	default:
	}
	at := st.PIDs.Shim
	if at.IsZero() {
		at = Starter(s.Run)
	}
	s.Foreign = !f.Here(at)
	if shim, err := process.OpenRun(f.Path(s.Run.ID)); err == nil {
		s.Timeout = shim.Spec().Timeout
		s.RunningFor = f.atMost(s, shim.Spec().Contact)
	} else if st.Adrift {
		s.RunningFor = f.atMost(s, st.PIDs.Shim.Started())
	}
	return s
}

// atMost bounds for how long a run has gone on by the boot clock, of which intended is a moment: the database's may have been
// set, and nothing that lives is ended for that.
func (f Finder) atMost(s Sight, intended int64) time.Duration {
	since := process.BootClock() - intended
	if s.Foreign || intended <= 0 || since < 0 {
		return s.RunningFor
	}
	return min(s.RunningFor, time.Duration(since))
}
