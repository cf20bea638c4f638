package app

import (
	"testing"

	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/testdb"
)

// An agent that works on for many times the window in which the dead are found, while the orch that follows it is killed and
// started again about every second, is never taken for dead. ORCH_NIGHT_TICKS makes it longer.
func TestLivingAgentWhoseMonitorDiesAllTheTimeIsNeverReaped(t *testing.T) {
	t.Parallel()
	const aSecond = 20 // ticks
	s := newStand(t)
	s.furnishNight()
	s.on(testdb.ConnConfig(s.pool), "ORCH_REAPER_INTERVAL_S=0.05", "ORCH_REAPER_DEAD_TICKS=2",
		"ORCH_LEASE_TTL_S=3", "ORCH_HEARTBEAT_S=0.5", "ORCH_POLL_S=0.1", "ORCH_RECONCILE_INTERVAL_S=0.5")
	s.write("pass", "")
	srv := s.start("serve-night", s.dir).dial()
	key := srv.add()
	run := srv.working(key)
	total, lives := number(t, "ORCH_NIGHT_TICKS", 150), 0
	ticks := func() int { return len(s.file("ticks")) }
	begun := ticks()
	for ticks()-begun < total {
		before := ticks()
		s.until("a second of the reaper's ticks", func() bool { return ticks() >= before+aSecond })
		srv.end(unix.SIGKILL)
		lives++
		if !alive(*run.Pid) {
			t.Fatalf("the agent is gone after %d ticks and %d deaths of orch", ticks()-begun, lives)
		}
		srv = s.start("serve-night", s.dir).dial()
	}
	// What comes after the agent's end isn't what this is about: at the usual pace nobody takes a slow machine's handler for stuck.
	srv.end(unix.SIGKILL)
	s.on(testdb.ConnConfig(s.pool))
	srv = s.start("serve-night", s.dir).dial()
	srv.at(key, "its agent is followed again", func(d api.TaskDetail) bool {
		return d.Job != nil && d.Job.Pid != nil && *d.Job.Pid == *run.Pid
	})
	s.write("go", "")
	d := srv.landed(key)
	s.once(srv, d)
	agents := 0
	for _, r := range d.Runs {
		if r.Purpose == "agent" {
			agents++
		}
	}
	if agents != 1 {
		t.Errorf("%d runs of the agent: %+v", agents, d.Runs)
	}
	if n := s.count(`select coalesce(sum(recoveries), 0) from jobs where task_id is not null`); n != 0 { // a death may meet a prune
		t.Errorf("%d recoveries", n)
	}
	for _, l := range s.told(reapedMessage) {
		if l.text("reason") != "worker_dead" || l.text("outcome") == "failed" {
			t.Errorf("reaped: %v", l)
		}
	}
	srv.end(unix.SIGTERM)
	t.Logf("%d ticks of the reaper, %d deaths of orch, the agent lived", ticks()-begun, lives)
}
