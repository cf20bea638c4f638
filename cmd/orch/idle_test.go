package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// Shims are there for as long as agents work, in as many copies. The bounds are far from what is measured, which is told.
func TestShimIsSmall(t *testing.T) {
	t.Parallel()
	const count, most = 10, 32 << 10 // kB of a shim's own
	var shims []int
	for range count {
		dir, _ := runtest.Create(t, "echo ready; exec sleep 1000", func(s *process.Spec) { s.Timeout, s.StallTimeout = time.Hour, time.Hour })
		r := runtest.LaunchWith(t, dir, []string{program, "shim"}, process.Bundle{
			Env: runtest.Env(), Secrets: []process.Secret{{Name: "API_KEY", Value: "sk-" + strings.Repeat("0123456789abcdef", 6)}},
		})
		shims = append(shims, runtest.Started(t, r).PIDs.Shim.PID)
		runtest.Eventually(t, "its output", func() bool { return runtest.Output(t, r) == "ready\n" })
	}
	var own, share, whole, threads int
	for _, pid := range shims {
		status := fields(t, pid, "status")
		if own = max(own, status["RssAnon"]); own > most && !raceEnabled {
			t.Errorf("a shim has %d kB of its own", own)
		}
		whole = max(whole, status["VmRSS"])
		share = max(share, fields(t, pid, "smaps_rollup")["Pss"])
		threads = max(threads, status["Threads"])
	}
	t.Logf("of %d shims, the largest: %d kB of its own, %d kB with its share of the program's file (Pss), %d kB resident, %d threads",
		count, own, share, whole, threads)
}

// fields are the numbers of a file of /proc; none of one that only root may read.
func fields(t *testing.T, pid int, name string) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if os.IsPermission(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		if words := strings.Fields(value); len(words) > 0 {
			if n, err := strconv.Atoi(words[0]); err == nil {
				found[key] = n
			}
		}
	}
	return found
}

// cost is what processes have used up.
type cost struct {
	wakeups int // times that a thread of theirs was put on a processor
	ticks   int // of processor time, 100 a second
}

func (c cost) per(while time.Duration) string {
	return fmt.Sprintf("%.1f wake-ups and %.2f ms of processor time", float64(c.wakeups)/while.Seconds(), 10*float64(c.ticks)/while.Seconds())
}

func costOf(t *testing.T, pids ...int) (c cost) {
	t.Helper()
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("process %d: %v", pid, err)
		}
		for _, thread := range threads {
			if _, err := os.Stat(thread); err != nil {
				continue // ended
			}
			status := fields(t, pid, filepath.Join("task", filepath.Base(thread), "status"))
			c.wakeups += status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"]
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, word := range words[11:13] { // user and system time
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			c.ticks += n
		}
	}
	return c
}

// used is what processes use in a while.
func used(t *testing.T, while time.Duration, pids ...int) cost {
	t.Helper()
	before := costOf(t, pids...)
	<-time.After(while)
	after := costOf(t, pids...)
	return cost{after.wakeups - before.wakeups, after.ticks - before.ticks}
}

// It tells what it costs to have agents that say nothing: to their shims, and to the server that follows them.
//
//nolint:paralleltest // the long form would measure others too
func TestCostOfIdleAgents(t *testing.T) {
	besideOthers(t)
	while := time.Second
	if long() {
		while = time.Minute
	}
	p := newCrowd(t)
	p.write("agent.sh", `here=$(dirname "$0"); echo "$$" >> "$here/starts-$ORCH_TASK"; exec sleep 1000`)
	s := p.serve()
	alone := used(t, while, s.cmd.Process.Pid)
	runs := s.addAll(make([]string, crowd()))
	var shims []int
	for _, run := range runs {
		opened, err := process.OpenRun(filepath.Join(p.root, "runs", run.ID.String()))
		if err != nil {
			t.Fatal(err)
		}
		st, err := opened.State()
		if err != nil {
			t.Fatal(err)
		}
		shims = append(shims, st.PIDs.Shim.PID)
	}
	own := used(t, while, shims...)
	following := used(t, while, s.cmd.Process.Pid)
	t.Logf("%d idle agents cost, per second: their shims %s together; the server %s, and %s without them",
		len(shims), own.per(while), following.per(while), alone.per(while))
	p.cancelAll(s, runs)
}
