package app

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A daemon that panics with each of its ticks is started again and again and told of. Its siblings, the API and the process
// don't notice: a task lands meanwhile.
func TestDaemonThatPanicsAtEachTickTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	for _, service := range []string{serviceReaper, serviceReconcile, serviceReclaim, serviceMetrics, serviceSweep, serviceAgents} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			s.write("go", "")
			s.write("pass", "")
			srv := s.start("panics", "tick:"+service).dial()
			pid := srv.cmd.Process.Pid
			srv.landed(srv.add())
			s.until("it was started again twice", func() bool { return restarts(srv, service) >= 2 })
			// At most that one is missed: it may just be alive.
			if _, err := srv.client.Readiness(t.Context()); err != nil && !strings.Contains(err.Error(), "not ready: "+service+" (panic) (not_ready") {
				t.Error(err)
			}
			if !alive(pid) {
				t.Error("the process ended")
			}
			srv.end(unix.SIGTERM)
		})
	}
}

// restarts is how often the process has started a service again.
func restarts(srv *serving, service string) int {
	srv.t.Helper()
	content, err := os.ReadFile(srv.log)
	if err != nil {
		srv.t.Fatal(err)
	}
	return strings.Count(string(content), `msg="service ended, starting it again after a pause" service=`+service+" ")
}

// A daemon that doesn't come back from a tick is named by /readyz and GET /queue, and holds up neither work nor the stop.
func TestDaemonThatHangsIsStale(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.env = append(s.env, "ORCH_RECONCILE_INTERVAL_S=0.1")
	s.write("go", "")
	s.write("pass", "")
	srv := s.start("blocks", "tick:"+serviceReconcile).dial()
	srv.landed(srv.add())
	s.until("it is stale", func() bool {
		_, err := srv.client.Readiness(t.Context())
		return err != nil && strings.Contains(err.Error(), "not ready: "+serviceReconcile+" (stale) (not_ready")
	})
	q, err := srv.client.Queue(t.Context())
	if err != nil || q.Reconcile.Status != "stale" || q.Reaper.Status != "ok" || q.Worker.Status != "ok" {
		t.Errorf("reconcile %+v, reaper %+v, worker %+v, %v", q.Reconcile, q.Reaper, q.Worker, err)
	}
	srv.end(unix.SIGTERM)
	if !srv.says("service didn't stop in time, leaving it behind") {
		t.Error("the log doesn't tell of the one that was left behind")
	}
}
