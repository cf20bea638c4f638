package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/testdb"
)

// hostAgent tells every tenth of a second that it lives, and ends when its host is let go.
const hostAgent = `D=$(dirname "$0")
host=$(cat /proc/sys/kernel/hostname)
while [ ! -e "$D/go-$host" ]; do
	read up idle < /proc/uptime
	echo "$host $up $ORCH_RUN" >> "$D/beats"
	sleep 0.1
done
echo "$host" > "$ORCH_TASK.txt" && git add . && git commit -qm "Do $ORCH_TASK on $host"
`

// Two hosts work on one database. One is cut off from it: its agent ends before the other one begins the task anew, and
// nothing that it says later counts.
func TestHostThatIsCutOffLosesItsTask(t *testing.T) {
	t.Parallel()
	one, two, db, cable := newHosts(t, soonDead...)
	a := one.serve()
	key := a.add("Do it once")
	a.until(key, "its agent runs", func(d api.TaskDetail) bool { return len(one.beats()) > 0 && len(d.Runs) > 0 && d.Runs[0].Pid != nil })
	b := two.serve()
	cable.set(true)
	eventually(t, "an agent on the other host", func(context.Context) bool {
		beats := one.beats()
		return beats[len(beats)-1].host == "two"
	})
	one.oneAfterTheOther()
	one.write("go-two", "")
	b.landed(key)

	cable.set(false)
	db.becomes("finished host_dead orphaned", `select string_agg(state || ' ' || ended || ' ' || outcome, ',') from runs where purpose = 'agent' and host = 'one'`)
	eventually(t, "the first host works again", func(ctx context.Context) bool {
		ready, err := a.client.Readiness(ctx)
		return err == nil && ready.Status == "ready"
	})
	other := a.add("Another")
	one.write("go-one", "")
	a.landed(other)
	if got := one.git("log", "--format=%s", "main"); strings.Count(got, "Do "+key) != 1 || !strings.Contains(got, "Do "+key+" on two") {
		t.Errorf("main holds:\n%s", got)
	}
	db.becomes("host_lost", `select string_agg(kind, ',') from task_events e join tasks t on t.id = e.task_id where t.key = '`+key+`' and kind = 'host_lost'`)
	a.stops()
	b.stops()
}

// Whoever has just come has seen nobody being silent yet, whatever the database says: it may have been away from all.
func TestHostIsNotGivenUpByOneThatHasJustCome(t *testing.T) {
	t.Parallel()
	one, two, db, cable := newHosts(t) // dead only after hours
	a := one.serve()
	key := a.add("Do it once")
	a.until(key, "its agent runs", func(d api.TaskDetail) bool { return len(one.beats()) > 0 && len(d.Runs) > 0 && d.Runs[0].Pid != nil })
	cable.set(true)
	db.exec(`update roots set seen_at = seen_at - interval '1 day'`) // as if nobody had been able to say anything for a day
	db.exec(`update workers set heartbeat_at = heartbeat_at - interval '1 day'`)
	b := two.serve()
	db.becomes("1", `select count(*) from jobs where state = 'queued' and run_id is not null`) // its worker was silent for too long
	before := len(one.beats())
	ticks := map[time.Time]bool{}
	eventually(t, "some looks and some beats more", func(ctx context.Context) bool {
		if q, err := b.client.Queue(ctx); err == nil && q.Reaper.LastRunTS != nil {
			ticks[*q.Reaper.LastRunTS] = true
		}
		return len(ticks) > 3 && len(one.beats()) > before+10
	})
	if got := db.value(`select count(*) from roots r join workers w on w.root_id = r.id
		where greatest(seen_at, heartbeat_at) < clock_timestamp() - interval '12 hours'`); got != "1" {
		t.Errorf("%s hosts haven't been seen for a day, want the first", got)
	}
	cable.set(false)
	one.write("go-one", "")
	one.write("go-two", "")
	d := a.landed(key)
	if got := one.git("log", "--format=%s", "main"); !strings.Contains(got, "Do "+key+" on one") {
		t.Errorf("main holds:\n%s", got)
	}
	if d.Runs[0].Attempt != 1 {
		t.Errorf("runs: %+v", d.Runs)
	}
	a.stops()
	b.stops()
}

// soonDead has the agents of a host that is cut off end before others take its work. Each waits for longer than a busy machine
// is silent.
var soonDead = []string{"ORCH_ORPHAN_GRACE_S=9", "ORCH_HOST_DEAD_S=16"}

// newHosts makes two hosts with a data root each on one database, the first by a cable that can be cut.
func newHosts(t *testing.T, more ...string) (one, two *place, db *store, cable *cable) {
	t.Helper()
	one = newPlace(t, hostAgent)
	config := testdb.Empty(t)
	cable = newCable(t, config)
	quick := append([]string{"ORCH_LEASE_TTL_S=3", "ORCH_REAPER_INTERVAL_S=1"}, more...)
	one.onDatabase(cable.config, quick...)
	one.host = "one"
	two = one.at("other")
	two.write("other/orch.yaml", one.read("root/orch.yaml"))
	db = two.onDatabase(config, quick...)
	two.host = "two"
	return one, two, db, cable
}

// oneAfterTheOther checks that the agent of the first host was gone before that of the second began.
func (p *place) oneAfterTheOther() {
	p.t.Helper()
	var last, first float64
	runs := map[string]string{}
	for _, b := range p.beats() {
		if runs[b.run] = b.host; b.host == "one" {
			last = max(last, b.at)
		} else if first == 0 {
			first = b.at
		}
	}
	if first == 0 || first <= last {
		p.t.Errorf("the second host's agent began %.2f s after the boot, the first host's lived until %.2f", first, last)
	}
	if len(runs) != 2 {
		p.t.Errorf("%d runs, want 2: %v", len(runs), runs)
	}
	p.t.Logf("the second agent began %.1f s after the first was gone", first-last)
}
