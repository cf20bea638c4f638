package process

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/cgroup"
	"orch/internal/process/ending"
	"orch/internal/process/procfs"
)

const (
	// RemainsGrace is what processes get between SIGTERM and SIGKILL that the program left behind.
	RemainsGrace = 2 * time.Second
	// KillPatience bounds the wait for processes that don't die of SIGKILL.
	KillPatience = ending.Patience
)

// ErrSurvivors means that processes of a run couldn't be ended.
var ErrSurvivors = ending.ErrSurvivors

// EndRemains ends what a dead shim left: the program's group and session, everything marked, and all that descends from
// them. Of a run of another boot or pid namespace only what carries its mark here is ended, since its pids mean something
// else. It is for the caller to know that nobody else works with the run any more; [ErrHeld] when its shim lives.
//
// Where the run could have no cgroup, a process that has left the session, thrown its environment away and lost its parent
// is found by nobody but the shim.
func (r *Run) EndRemains(ctx context.Context) error {
	st, err := r.State()
	if err != nil {
		return err
	}
	switch st.Status {
	case StatusDead, StatusForeign:
		return r.endRemains(ctx, st)
	case StatusAlive:
		return fmt.Errorf("end what is left of a run: %w", ErrHeld)
	case StatusUnknown:
		return fmt.Errorf("end what is left of a run: %w: %w", ErrUnknown, st.Doubt)
	default:
		return nil
	}
}

func (r *Run) endRemains(ctx context.Context, st State) error {
	pids := st.PIDs
	if st.Interrupted {
		pids = PIDs{}
	}
	return endAll(ctx, pids, r.id(), r.dir, min(r.spec.Grace(), RemainsGrace))
}

// endAll ends what is left of a run, and its cgroup with it.
func endAll(ctx context.Context, pids PIDs, runID, dir string, grace time.Duration) error {
	group := cgroup.Of(runID, pids.Cgroup)
	if err := ending.All(ctx, remains(pids, group, runID, dir), grace); err != nil {
		return err //nolint:wrapcheck // it says what it is
	}
	cgroup.Remove(group)
	return nil
}

// endMarked ends a program whose shim lives but can't be found; the shim does the rest.
func (r *Run) endMarked(ctx context.Context) error {
	return endAll(ctx, PIDs{}, r.id(), r.dir, r.spec.Grace())
}

// EndLost ends every process of this pid namespace that carries a run's mark, and what descends from it, for a run whose
// directory is lost. Shim is the pid that its shim had here, 0 when that isn't known: one that still lives, as its argument
// tells, is ended with all that came from it.
func EndLost(ctx context.Context, runID, dir string, shim int) error {
	return endAll(ctx, PIDs{Shim: Identity{PID: shim}}, runID, dir, RemainsGrace)
}

// remains picks the program's group, everything marked, the session that the shim made, and what is in the run's cgroup.
// What the shim was just starting when it died isn't marked yet: it looks like the shim itself, whose argument is the
// run directory.
func remains(pids PIDs, together, runID, dir string) func(all []procfs.Stat) []procfs.Stat {
	self := unix.Getpid()
	return func(all []procfs.Stat) []procfs.Stat {
		group := groupOf(all, pids)
		inCgroup := cgroup.Processes(together) // later than all: a pid that has a new owner since isn't signalled
		marked := make(map[int]bool)
		session := false
		for _, st := range all {
			if st.PID == self || st.Zombie() {
				continue
			}
			if group(st) || procfs.HasEnv(st.PID, Mark+"="+runID) || inSession(st, pids) && procfs.HasArg(st.PID, dir) {
				marked[st.PID] = true
				session = session || inSession(st, pids)
			}
		}
		var found []procfs.Stat
		for _, st := range all {
			if marked[st.PID] || (inCgroup[st.PID] || session && inSession(st, pids)) && st.PID != self && !st.Zombie() {
				found = append(found, st)
			}
		}
		return found
	}
}

// inSession reports whether a process is of a session with the number of the shim's. It is the shim's own as long as one
// of its members is known by something else: a number stays taken while it has members, but may have had a new owner
// since the last one left.
func inSession(st procfs.Stat, pids PIDs) bool {
	return pids.Shim.PID > 0 && st.Session == pids.Shim.PID && st.Started >= pids.Shim.StartedAt
}

// groupOf tells the members of the program's process group. A group or session id stays taken while it has members,
// so if either leader's pid has a new owner, no member is left.
func groupOf(all []procfs.Stat, pids PIDs) func(procfs.Stat) bool {
	agent, shim := pids.Agent, pids.Shim
	known := agent.PID > 0 && shim.PID > 0
	for _, st := range all {
		if (st.PID == agent.PID && st.Started != agent.StartedAt) || (st.PID == shim.PID && st.Started != shim.StartedAt) {
			known = false
		}
	}
	return func(st procfs.Stat) bool {
		return known && st.Group == agent.PID && st.Session == shim.PID && st.Started >= agent.StartedAt
	}
}
