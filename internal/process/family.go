package process

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/ending"
	"orch/internal/process/procfs"
)

// Mark is the name of the environment variable that carries the run's id in the program and all its descendants.
const Mark = "ORCH_RUN"

// Family is everything alive that came from the program of a run: what descends from the shim, which inherits every
// orphan, and what carries the run's mark.
type Family struct {
	Shim  int // pid of the calling process
	RunID string
}

// Kill sends SIGKILL to all of them once. What it misses, as it couldn't look or they fork, the next call finds.
func (f Family) Kill() {
	all, err := procfs.All()
	if err != nil {
		return // comes again
	}
	for _, st := range f.pick(all) {
		_ = procfs.Signal(st, unix.SIGKILL)
	}
}

// End gives them SIGTERM once each, SIGKILL after the grace, until a look finds none; [ErrSurvivors] when some stay.
func (f Family) End(ctx context.Context, grace time.Duration) error {
	return ending.All(ctx, f.pick, grace)
}

func (f Family) pick(all []procfs.Stat) []procfs.Stat {
	found := procfs.Descendants(all, f.Shim)
	seen := ending.PIDs(found)
	for _, st := range all {
		if st.PID != f.Shim && !seen[st.PID] && !st.Zombie() && procfs.HasEnv(st.PID, Mark+"="+f.RunID) {
			found = append(found, st)
		}
	}
	return found
}
