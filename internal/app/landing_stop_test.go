package app

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// orch is stopped at each point of a landing until its leases have run out and another process has landed what it was at. Let
// go on, it changes nothing more.
func TestStoppedAtEachPointOfALandingChangesNothingLater(t *testing.T) {
	t.Parallel()
	points, kinds := "merge:landing|local:copied|local:swapped", []kind{{name: "a landing on a checked out branch", land: "auto", batch: 1}}
	if variables["ORCH_SWEEP"] == sweepAll {
		points = landingPoints
		kinds = append(kinds,
			kind{name: "a landing in a bare repository", bare: true, land: "auto", batch: 1},
			kind{name: "a branch for a person to land", land: "manual", batch: 1},
			kind{name: "three that land together", land: "auto", batch: 3},
		)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			stopped := newCourse(t, k, "ORCH_MERGE_LOCK_TIMEOUT_S=4", "ORCH_LEASE_TTL_S=3", "ORCH_HEARTBEAT_S=0.3", "ORCH_REAPER_INTERVAL_S=1").stops(points)
			t.Logf("stopped at %d points: %s", len(stopped), strings.Join(stopped, " "))
			if !slices.Contains(stopped, "merge:landing") && k.land == "auto" {
				t.Error("these are not all")
			}
		})
	}
}

// stops is a sweep by which one worker after the other is stopped, each as soon as it has taken the one before's place.
func (c *course) stops(prefix string) (stopped []string) {
	c.t.Helper()
	env := c.env
	c.env = append(slices.Clone(env), "ORCH_WORKER_ENABLED=false")
	srv := c.start("obey", c.dir).dial()
	c.env = env
	first := c.start("work", c.dir)
	for nth := 1; ; nth++ {
		keys := c.addAll(srv, order{signal: unix.SIGSTOP, nth: nth, prefix: prefix})
		c.until("a stop, or the end of the landing", func() bool { return c.followed() != "" || c.ended(srv, keys) })
		point := c.withdraw()
		if point == "" {
			c.judge([]*serving{srv, first}, keys, "nothing")
			first.end(unix.SIGTERM)
			srv.end(unix.SIGTERM)
			return stopped
		}
		stopped = append(stopped, point)
		held := c.count(`select count(*) from jobs where kind = 'merge' and state = 'running'`) > 0
		second := c.start("work", c.dir)
		// Whoever was stopped keeps the locks that it has: then the other one can but wait for them. A mate's job may have one too,
		// and a clean-up that had begun has that of its workspace.
		locked, busy := false, false
		c.until("the landing's end while one is stopped at "+point, func() bool {
			locked = c.count(`select count(*) from merge_attempts where finished_at is null and last_error is not null`) > 0
			busy = c.count(`select count(*) from jobs where kind = 'retire' and state = 'queued' and phase = 'workspace_busy'`) > 0
			return locked || busy || c.ended(srv, keys)
		})
		if locked && c.kind.batch == 1 && !strings.HasPrefix(point, "local:refresh") {
			c.t.Errorf("stopped at %s, it held a lock", point)
		}
		waits := locked || busy
		before := c.facts()
		_ = first.cmd.Process.Signal(unix.SIGCONT)
		if waits {
			c.until("the landing's end after one was stopped at "+point, func() bool { return c.ended(srv, keys) })
		}
		if held {
			c.until("whoever was stopped at "+point+" knows what it has lost", func() bool { return first.says(`msg="lease lost"`) })
		}
		first.end(unix.SIGTERM)
		for i, after := range c.facts() {
			if !waits && after != before[i] {
				c.t.Errorf("stopped at %s, it changed later\n%s\nto\n%s", point, before[i], after)
			}
		}
		c.judge([]*serving{srv, second}, keys, point)
		first = second
	}
}

// facts is all that whoever was stopped could change.
func (c *course) facts() (all []string) {
	c.t.Helper()
	all = []string{c.target.Git("for-each-ref"), c.target.Git("reflog", "show", "main")}
	for _, sql := range []string{
		`select coalesce(jsonb_agg(to_jsonb(t) order by id), '[]') from tasks t`,
		`select coalesce(jsonb_agg(to_jsonb(a) order by id), '[]') from merge_attempts a`,
		`select coalesce(jsonb_agg(to_jsonb(j) order by id), '[]') from jobs j where kind <> 'jobs.prune'`,
		`select coalesce(jsonb_agg(to_jsonb(l)), '[]') from merge_leases l`,
		`select count(*) from task_events`,
	} {
		var row string
		if err := c.pool.QueryRow(c.t.Context(), "select ("+sql+")::text").Scan(&row); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}
