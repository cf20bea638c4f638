package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/procfs"
)

const (
	// RemainsGrace is what processes get between SIGTERM and SIGKILL that the program left behind.
	RemainsGrace = 2 * time.Second
	// KillPatience bounds the wait for processes that don't die of SIGKILL: they hang in the kernel or aren't ours to kill.
	KillPatience = 30 * time.Second
	endFirst     = time.Millisecond
	endMost      = 100 * time.Millisecond
)

// ErrSurvivors means that processes of a run couldn't be ended.
var ErrSurvivors = errors.New("processes survived SIGKILL")

// endAll ends everything that find finds: SIGTERM once each, SIGKILL after the grace, until find finds nothing.
// A process that appears meanwhile is treated alike; after the grace nothing gets a SIGTERM first.
func endAll(ctx context.Context, find func() ([]procfs.Stat, error), grace time.Duration) error {
	killAt := BootClock() + int64(grace)
	asked := make(map[int]int64)
	for pause := endFirst; ; pause = min(2*pause, endMost) {
		found, err := find()
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		now := BootClock()
		if now > killAt+int64(KillPatience) {
			return fmt.Errorf("end processes: %w: %d, one of them %d", ErrSurvivors, len(found), found[0].PID)
		}
		for _, st := range found {
			switch {
			case now >= killAt:
				_ = procfs.Signal(st, unix.SIGKILL) // what can't be signalled is found again
			case asked[st.PID] != st.Started:
				asked[st.PID] = st.Started
				_ = procfs.Signal(st, unix.SIGTERM)
			}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// endRemains ends what a dead shim left: the program's group and everything marked. Only the same boot and pid
// namespace may do it, which State has made sure of by calling the run dead.
func (r *Run) endRemains(ctx context.Context, st State) error {
	if st.Rebooted {
		return nil
	}
	return endAll(ctx, func() ([]procfs.Stat, error) { return remains(st.PIDs, r.spec.RunID) }, min(r.spec.Grace(), RemainsGrace))
}

// EndMarked ends every process of this pid namespace that carries a run's mark, for a run whose directory is lost.
func EndMarked(ctx context.Context, runID string) error {
	return endAll(ctx, func() ([]procfs.Stat, error) { return remains(PIDs{}, runID) }, RemainsGrace)
}

func remains(pids PIDs, runID string) ([]procfs.Stat, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	self := unix.Getpid()
	group := groupOf(all, pids)
	var found []procfs.Stat
	for _, st := range all {
		if st.PID == self || st.Zombie() {
			continue
		}
		if group(st) || procfs.HasEnv(st.PID, Mark+"="+runID) {
			found = append(found, st)
		}
	}
	return found, nil
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
