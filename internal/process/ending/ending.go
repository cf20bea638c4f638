// Package ending ends processes and everything that they start meanwhile.
package ending

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/procfs"
)

const (
	// Patience bounds the wait for processes that don't die of SIGKILL: they hang in the kernel or aren't ours to kill.
	Patience = 30 * time.Second
	first    = time.Millisecond
	most     = 100 * time.Millisecond
)

// ErrSurvivors means that processes couldn't be ended.
var ErrSurvivors = errors.New("processes survived SIGKILL")

// All ends everything that pick picks from a list of all processes, and what descends from that: SIGTERM once each,
// SIGKILL after the grace, until nothing is left. A process that appears meanwhile is treated alike; after the grace
// nothing gets a SIGTERM first.
func All(ctx context.Context, pick func(all []procfs.Stat) []procfs.Stat, grace time.Duration) error {
	killAt := time.Now().Add(grace)
	asked := make(map[int]procfs.Stat)
	for pause := first; ; pause = min(2*pause, most) {
		all, err := procfs.All()
		if err != nil {
			return fmt.Errorf("end processes: %w", err)
		}
		// Before the first signal: what ends leaves its children to somebody else, and then nothing tells whose they were.
		found := withDescendants(all, withLingering(all, pick(all), asked))
		if len(found) == 0 {
			return nil
		}
		kill := !time.Now().Before(killAt)
		if time.Since(killAt) > Patience {
			return fmt.Errorf("end processes: %w: %d, one of them %d", ErrSurvivors, len(found), found[0].PID)
		}
		for _, st := range found {
			switch {
			case kill:
				_ = procfs.Signal(st, unix.SIGKILL) // what can't be signalled is found again
			case asked[st.PID].Started != st.Started:
				_ = procfs.Signal(st, unix.SIGTERM)
			}
			asked[st.PID] = st
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// withLingering adds those that were signalled before and are still there: a process that is exiting has lost its
// environment, and so its mark, a moment before it has let go of its files; and one whose parent has gone is known by
// nothing else.
func withLingering(all, found []procfs.Stat, asked map[int]procfs.Stat) []procfs.Stat {
	seen := PIDs(found)
	for _, st := range all {
		if before, ok := asked[st.PID]; ok && !seen[st.PID] && st.Started == before.Started && !st.Zombie() {
			found = append(found, st)
		}
	}
	return found
}

// withDescendants adds what descends from those that were found, but for this process.
func withDescendants(all, found []procfs.Stat) []procfs.Stat {
	seen := PIDs(found)
	self := unix.Getpid()
	for _, one := range slices.Clip(found) {
		for _, st := range procfs.Descendants(all, one.PID) {
			if st.PID != self && !seen[st.PID] {
				seen[st.PID] = true
				found = append(found, st)
			}
		}
	}
	return found
}

// PIDs is the set of their pids.
func PIDs(stats []procfs.Stat) map[int]bool {
	pids := make(map[int]bool, len(stats))
	for _, st := range stats {
		pids[st.PID] = true
	}
	return pids
}
