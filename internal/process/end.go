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
	asked := make(map[int]procfs.Stat)
	for pause := endFirst; ; pause = min(2*pause, endMost) {
		found, err := find()
		if err != nil {
			return err
		}
		if found = withLingering(found, asked); len(found) == 0 {
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
			case asked[st.PID].Started != st.Started:
				_ = procfs.Signal(st, unix.SIGTERM)
			}
			asked[st.PID] = st
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// withLingering adds those that were signalled before and are still there: a process that is exiting has lost its
// environment, and so its mark, a moment before it has let go of its files.
func withLingering(found []procfs.Stat, asked map[int]procfs.Stat) []procfs.Stat {
	seen := make(map[int]bool, len(found))
	for _, st := range found {
		seen[st.PID] = true
	}
	for pid, before := range asked {
		if seen[pid] {
			continue
		}
		if now, err := procfs.Read(pid); err == nil && now.Started == before.Started && !now.Zombie() {
			found = append(found, now)
		}
	}
	return found
}

// endRemains ends what a dead shim left: the program's group and everything marked. The pids of another boot or pid
// namespace mean something else here, so of such a run only what carries its mark is ended.
func (r *Run) endRemains(ctx context.Context, st State) error {
	pids := st.PIDs
	if st.Interrupted {
		pids = PIDs{}
	}
	return endAll(ctx, func() ([]procfs.Stat, error) { return remains(pids, r.id()) }, min(r.spec.Grace(), RemainsGrace))
}

// endMarked ends a program whose shim lives but can't be found; the shim does the rest.
func (r *Run) endMarked(ctx context.Context) error {
	return endAll(ctx, func() ([]procfs.Stat, error) { return remains(PIDs{}, r.id()) }, r.spec.Grace())
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
