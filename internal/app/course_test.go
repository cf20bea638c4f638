package app

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// landingPoints begin those between the steps of a landing.
const landingPoints = "merge:|local:"

// course is a stand on which one landing after the other is disturbed, each by one process more than the one before.
type course struct {
	*stand
	kind   kind
	target *testgit.Repo
	moves  int // of the target, so far
}

// kind is what a course has to do.
type kind struct {
	name  string
	bare  bool // nobody has the target checked out
	land  string
	batch int  // tasks that land together
	red   bool // they are red together, each alone is green
}

func newCourse(t *testing.T, k kind, env ...string) *course {
	t.Helper()
	c := &course{stand: newStand(t), kind: k}
	c.write("agent.sh", `echo "$ORCH_TASK" > "$ORCH_TASK" && git add . && git commit -qm "Do $ORCH_TASK"
`)
	c.target = c.repo
	if k.bare {
		dir := filepath.Join(c.dir, "app.git")
		c.repo.Git("clone", "-q", "--bare", ".", dir)
		c.target = testgit.Open(t, dir)
	}
	c.target.Git("config", "core.logAllRefUpdates", "always")
	c.write("test.sh", k.test(c.target.Dir))
	c.moves = c.reflog()
	c.write("orch.yaml", `repos:
  - {name: app, path: `+c.target.Dir+`, test: sh `+c.dir+`/test.sh, land: `+k.land+k.more()+`}
agents:
  coder: {preset: command, command: sh `+c.dir+`/agent.sh}
`)
	c.on(testdb.ConnConfig(c.pool), append([]string{"ORCH_POLL_S=0.1", "ORCH_MAX_CONCURRENCY=4"}, env...)...)
	return c
}

// test is green, but for more than one change at a time when they are to be red together.
func (k kind) test(target string) string {
	if !k.red {
		return "ls app-*\n"
	}
	return `landed=$(git --git-dir ` + target + `/.git ls-tree --name-only main | grep -c app-)
test $(ls app-* | wc -l) -le $((landed + 1))
`
}

func (k kind) more() string {
	if k.batch == 1 {
		return ""
	}
	return ", batch: " + strconv.Itoa(k.batch)
}

// reflog is how often main was moved.
func (c *course) reflog() int {
	c.t.Helper()
	out, err := c.target.Try("reflog", "show", "--format=%h", "main")
	if err != nil { // a bare clone has none yet
		return 0
	}
	return len(strings.Fields(out))
}

// sweep lets a process die at the first point of a landing, then one at the second, and so on, until one lands something
// without dying. Each is followed by one that takes over what it finds, and in turn dies at the next landing. It returns
// where they died. Of several courses that share a sweep each has every so manyeth point, from its own first.
func (c *course) sweep(since, prefix string, first, step, most int) (died []string) {
	c.t.Helper()
	srv := c.start("obey", c.dir).dial()
	for nth := first; ; nth += step {
		keys := c.addAll(srv, order{signal: unix.SIGKILL, nth: nth, since: since, prefix: prefix})
		c.until("a death, or the end of the landing", func() bool {
			select {
			case <-srv.gone:
				return true
			default:
				return c.ended(srv, keys)
			}
		})
		point := c.withdraw()
		if point == "" {
			c.judge([]*serving{srv}, keys, "nothing")
			srv.end(unix.SIGTERM)
			return died
		}
		if how := srv.ended(); !strings.Contains(how, "killed") {
			c.t.Fatalf("orch ended with %s at %s", how, point)
		}
		died = append(died, point)
		if nth >= most {
			c.t.Fatalf("no end of points: %q", died)
		}
		srv = c.start("obey", c.dir).dial()
		c.until("the landing's end after a death at "+point, func() bool { return c.ended(srv, keys) })
		c.judge([]*serving{srv}, keys, point)
	}
}

// addAll adds the tasks that are to land together, and gives an order for their landing. They are held back until all of them
// stand in line.
func (c *course) addAll(srv *serving, o order) (keys []string) {
	c.t.Helper()
	if c.kind.batch == 1 {
		c.give(o)
		return []string{srv.add()}
	}
	c.exec(`insert into jobs (kind, lane, state, max_attempts, epoch, worker_id, lease_expires_at)
		values ('hold', 'hold', 'running', 1, 1, gen_random_uuid(), now() + interval '1 hour')`)
	c.exec(`insert into merge_leases (repo, target, epoch) values ('app', 'main', 1) on conflict do nothing`)
	c.exec(`update merge_leases set epoch = merge_leases.epoch + 1, job_id = j.id, job_epoch = 1, task_id = 0, branch = 'hold', worker_id = j.worker_id,
		root_id = r.id, host = 'other', boot_id = 'other', pid_namespace = 'other', pid = 1, pid_started_at = 1,
		acquired_at = clock_timestamp(), renewed_at = clock_timestamp() + interval '1 hour' from jobs j, roots r where j.kind = 'hold'`)
	for range c.kind.batch {
		keys = append(keys, srv.add())
	}
	c.until("all stand in line", func() bool { // and stay there: they would look again before the slowest has come
		c.exec(`update jobs set run_at = clock_timestamp() + interval '15 seconds' where state = 'queued'
			and id in (select job_id from merge_attempts where finished_at is null)`)
		return c.count(`select count(*) from merge_attempts a join jobs j on j.id = a.job_id
			where a.finished_at is null and j.state = 'queued'`) == c.kind.batch
	})
	c.give(o)
	c.exec(`update merge_leases set epoch = epoch + 1, job_id = null, acquired_at = null, renewed_at = null`)
	c.exec(`delete from jobs where kind = 'hold'`)
	c.exec(`update jobs set run_at = clock_timestamp() where id = (
		select job_id from merge_attempts where finished_at is null order by id limit 1)`)
	return keys
}

func (c *course) exec(sql string) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatal(err)
	}
}

// ended says whether nothing is left to be done for the tasks.
func (c *course) ended(at *serving, keys []string) bool {
	c.t.Helper()
	for _, key := range keys {
		d, err := at.client.GetTask(c.t.Context(), key)
		if err != nil {
			return false
		}
		if d.Task.State == api.TaskBlocked {
			c.t.Fatalf("%s is blocked: %s", key, *d.Task.Reason)
		}
		if c.kind.land == "manual" && d.Task.State != api.TaskWaiting {
			return false
		}
		if c.kind.land != "manual" && (d.Task.State != api.TaskDone || d.Events[len(d.Events)-1].Kind != "retired") {
			return false
		}
	}
	return c.openJobs() == 0
}

// openJobs counts the jobs that aren't done, but for those that come again and again.
func (c *course) openJobs() int {
	c.t.Helper()
	return c.count(`select count(*) from jobs where state in ('queued', 'running') and kind <> 'jobs.prune'`)
}

// judge checks what a disturbance left: as if there had been none.
func (c *course) judge(living []*serving, keys []string, point string) {
	c.t.Helper()
	wrong := func(format string, args ...any) {
		c.t.Helper()
		c.t.Errorf("after %s at %s: %s", c.kind.name, point, fmt.Sprintf(format, args...))
	}
	if n := c.count(`select count(*) from merge_leases where job_id is not null`); n != 0 {
		wrong("the merge lease is held")
	}
	if n := c.openJobs(); n != 0 {
		wrong("%d jobs are open", n)
	}
	if n := c.count(`select count(*) from runs where state <> 'finished' or consumed_at is null`); n != 0 {
		wrong("%d runs haven't ended, or weren't used", n)
	}
	if n := c.count(`select count(*) from tasks where round <> 1`); n != 0 {
		wrong("%d tasks went back to their author", n)
	}
	c.target.Git("fsck", "--no-dangling", "--no-progress")
	for _, key := range keys {
		c.judgeTask(living[0], key, wrong)
	}
	c.judgeMoves(wrong)
	c.judgeRemains(living, wrong)
}

func (c *course) judgeTask(at *serving, key string, wrong func(format string, args ...any)) {
	c.t.Helper()
	d, err := at.client.GetTask(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	branch, times := "main", "1"
	if c.kind.land == "manual" {
		if got := c.target.Git("rev-list", "--count", "--grep=^Do "+key+"$", "main"); got != "0" {
			wrong("%s landed", key)
		}
		branch = d.Task.Branch
	}
	if got := c.target.Git("rev-list", "--count", "--grep=^Do "+key+"$", branch); got != times {
		wrong("%s is on %s %s times", key, branch, got)
	}
	if got := c.target.Git("show", branch+":"+key); got != key {
		wrong("%s has %q in its file", branch, got)
	}
	if landed := d.Task.LandedCommit; c.kind.land != "manual" && (landed == nil || c.target.Git("merge-base", *landed, "main") != *landed) {
		wrong("%s isn't said to be landed where it is", key)
	}
}

// judgeMoves checks that main was moved once for everything that landed together, and never else.
func (c *course) judgeMoves(wrong func(format string, args ...any)) {
	c.t.Helper()
	groups := c.count(`select count(distinct tip_sha) from merge_attempts where step = 'finalised'`)
	if now := c.reflog(); now-c.moves != groups {
		wrong("main was moved %d times, want %d:\n%s", now-c.moves, groups, c.target.Git("reflog", "show", "main"))
	}
	if n := c.count(`select count(*) from merge_attempts where finished_at is null and step <> 'ready'`); n != 0 {
		wrong("%d landings are open", n)
	}
	if !c.kind.bare {
		if got := c.target.Git("status", "--porcelain"); got != "" {
			wrong("the checkout shows\n%s", got)
		}
	}
}

// judgeRemains checks that nothing is left on disk, and nobody alive but whoever serves.
func (c *course) judgeRemains(living []*serving, wrong func(format string, args ...any)) {
	c.t.Helper()
	mirrors, err := filepath.Glob(filepath.Join(c.dir, "root", "mirrors", "*", "HEAD"))
	if err != nil || len(mirrors) == 0 {
		c.t.Fatalf("no mirrors: %v", err)
	}
	for _, head := range append(mirrors, filepath.Join(c.target.Dir, "HEAD")) {
		dir := filepath.Dir(head)
		for ref := range strings.FieldsSeq(testgit.Open(c.t, dir).Git("for-each-ref", "--format=%(refname)", "refs/orch")) {
			known := strings.HasPrefix(ref, "refs/orch/gate/") || strings.HasPrefix(ref, "refs/orch/offered/") // as far as fetched
			if !known && c.kind.land != "manual" {
				wrong("%s has %s", dir, ref)
			}
		}
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".lock") {
				wrong("on disk is left %s", path)
			}
			return nil // what goes away meanwhile isn't left
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	places, err := filepath.Glob(filepath.Join(c.dir, "root", "workspaces", "app", "*"))
	if err != nil || len(places) > 0 && c.kind.land != "manual" {
		wrong("on disk is left %s, %v", places, err)
	}
	c.until("nobody is left but orch", func() bool {
		for _, process := range c.processes() {
			pid, _, _ := strings.Cut(process, " ")
			if !slices.ContainsFunc(living, func(s *serving) bool { return strconv.Itoa(s.cmd.Process.Pid) == pid }) {
				return false
			}
		}
		return true
	})
}
