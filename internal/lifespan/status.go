package lifespan

import (
	"errors"
	"time"
)

// State is what a service is doing.
type State string

// States of a service.
const (
	StateDisabled State = "disabled"
	StateStarting State = "starting" // not ready yet, or waiting for its stage
	StateReady    State = "ready"
	StateBackoff  State = "backoff" // it ended and will be started again
	StateStopped  State = "stopped"
	StateStale    State = "stale" // ready, but silent for ten of its intervals
)

// Status is a service as Snapshot saw it.
type Status struct {
	Name      string
	State     State
	Enabled   bool
	Restarts  int
	LastError string    // code of the last unexpected end; empty when there was none, or it has been healthy since
	Since     time.Time // when State began
	LastBeat  time.Time // zero when the service never called Beat
}

// Codes of ends that Config.Code isn't asked about.
const (
	codePanic    = "panic"
	codeReturned = "returned"
	codeExited   = "exited"
	codeInternal = "internal"
)

func (s *Supervisor) code(err error) string {
	if errors.Is(err, errReturned) {
		return codeReturned
	}
	if errors.Is(err, errExited) {
		return codeExited
	}
	if _, ok := errors.AsType[*PanicError](err); ok {
		return codePanic
	}
	if s.cfg.Code != nil {
		return s.cfg.Code(err)
	}
	return codeInternal
}

// Snapshot tells how the services are, in the order in which they were given to New.
func (s *Supervisor) Snapshot() []Status {
	all := make([]Status, len(s.runners))
	for i, r := range s.runners {
		all[i] = r.snapshot(time.Now())
	}
	return all
}

// Beat notes that the service of that name made a tick. An unknown name is ignored.
func (s *Supervisor) Beat(name string) {
	for _, r := range s.runners {
		if r.service.Name == name {
			r.beat(time.Now())
			return
		}
	}
}

func (r *runner) snapshot(now time.Time) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	if r.healthy(now) {
		status.LastError = ""
	}
	if status.State != StateReady || r.service.Interval <= 0 {
		return status
	}
	heard := status.Since
	if status.LastBeat.After(heard) {
		heard = status.LastBeat
	}
	if silence := intervalsOfSilence * r.service.Interval; now.Sub(heard) > silence {
		status.State, status.Since = StateStale, heard.Add(silence)
	}
	return status
}

// healthy says whether the service has been ready for so long that its last end is forgiven. One that has to beat says so itself.
func (r *runner) healthy(now time.Time) bool {
	if r.status.State != StateReady {
		return false
	}
	if r.service.Interval > 0 {
		now = r.status.LastBeat
	}
	return now.Sub(r.status.Since) >= r.sup.cfg.HealthyAfter
}

func (r *runner) beat(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.LastBeat = now
}

func (r *runner) enter(state State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.State, r.status.Since = state, time.Now()
}

func (r *runner) noteEnd(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.LastError = code
}

func (r *runner) noteRestart() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Restarts++
	return r.status.Restarts
}
