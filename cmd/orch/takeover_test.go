package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"orch/api"
)

// hostTest waits on the first host when it judges what is to land there: the work on a base that moved meanwhile.
const hostTest = `D=$(dirname "$0")/..
echo tested >> "$D/tests"
if [ -e theirs ] && [ -e "$D/wait-test" ] && [ "$(cat /proc/sys/kernel/hostname)" = one ]; then
	: > "$D/there"
	while [ ! -e "$D/on" ]; do sleep 0.05; done
fi
`

// hostGit waits before or after the move of the target.
const hostGit = `#!/bin/sh
D=$(dirname "$0")/..
moves=no
case "$*" in *"update-ref -m orch: land"*) moves=yes ;; esac
wait_here() { : > "$D/there"; while [ ! -e "$D/on" ]; do sleep 0.05; done; }
[ $moves = yes ] && [ -e "$D/wait-before" ] && wait_here
REAL "$@"
code=$?
[ $moves = yes ] && [ -e "$D/wait-after" ] && wait_here
exit $code
`

// A host is cut off from the database while it lands something: another one goes on with what was made, and lands it once. What
// the first does when it is let go on changes nothing, nor does what it hears when the database is there again.
func TestAnotherHostLandsWhatOneThatIsCutOffHadBegunToLand(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"test", "before", "after"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			takeover(t, at)
		})
	}
}

func takeover(t *testing.T, at string) {
	t.Helper()
	one, two, db, cable := newHosts(t, soonDead...)
	one.write("app/test.sh", strings.ReplaceAll(hostTest, `$(dirname "$0")/..`, one.dir))
	one.commits("waits")
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	one.write("bin/git", strings.ReplaceAll(hostGit, "REAL", path))
	if err := os.Chmod(filepath.Join(one.dir, "bin", "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	one = one.with("PATH=" + filepath.Join(one.dir, "bin") + ":" + os.Getenv("PATH"))
	one.write("wait-"+at, "")

	a := one.serve()
	key := a.add("Do it once")
	a.until(key, "its agent runs", func(d api.TaskDetail) bool { return len(one.beats()) > 0 && len(d.Runs) > 0 && d.Runs[0].Pid != nil })
	one.write("app/theirs", "theirs\n")
	one.commits("theirs")
	moves := one.moves()
	one.write("go-one", "")
	eventually(t, "the first host is at its landing", func(context.Context) bool { return one.exists("there") })
	cable.set(true)
	b := two.serve()
	b.until(key, "landed by the other host", func(d api.TaskDetail) bool { return d.Task.State == api.TaskDone })
	landed := one.git("rev-parse", "main")
	one.write("on", "")
	cable.set(false)
	eventually(t, "the first host works again", func(ctx context.Context) bool {
		ready, err := a.client.Readiness(ctx)
		return err == nil && ready.Status == "ready"
	})
	b.landed(key) // its workspace is the first host's to remove
	db.becomes("0", `select count(*) from jobs where state in ('queued', 'running') and kind <> 'jobs.prune'`)
	a.stops()
	b.stops()

	if now := one.git("rev-parse", "main"); now != landed || one.moves() != moves+1 {
		t.Errorf("main was at %s and is at %s, moved %d times:\n%s", landed, now, one.moves()-moves, one.git("reflog", "show", "main"))
	}
	if got := one.git("log", "--format=%s", "main"); got != "Do "+key+" on one\ntheirs\nwaits\nfirst" {
		t.Errorf("main holds:\n%s", got)
	}
	if got := one.git("status", "--porcelain", "--untracked-files=no"); got != "" {
		t.Errorf("the checkout is dirty: %s", got)
	}
	for _, is := range []struct{ want, sql string }{
		{"1", `select count(*) from runs where purpose = 'agent' and outcome <> 'never_started'`}, // a busy machine's may be too late
		{"one", `select string_agg(distinct host, ',') from runs where purpose = 'agent'`},
		{"0", `select count(*) from merge_leases where job_id is not null`},
		{"0", `select count(*) from merge_attempts where finished_at is null`},
	} {
		if got := db.value(is.sql); got != is.want {
			t.Errorf("%s is %s, want %s", is.sql, got, is.want)
		}
	}
}

func (p *place) exists(name string) bool {
	_, err := os.Stat(filepath.Join(p.dir, name))
	return err == nil
}

// moves is how often main was moved.
func (p *place) moves() int {
	p.t.Helper()
	return len(strings.Fields(p.git("reflog", "show", "--format=%h", "main")))
}

// commits commits all that is in the repository's checkout.
func (p *place) commits(message string) {
	p.t.Helper()
	p.git("add", "-A")
	p.git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", message)
}
