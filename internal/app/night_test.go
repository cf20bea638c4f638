package app

import (
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/alert/telegram/telegramtest"
	"orch/internal/app/database"
	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/process"
	"orch/internal/root"
	"orch/internal/testdb"
	"orch/internal/testgit"
	"orch/internal/testhost"
)

const (
	nightSeconds = 40
	longNight    = 300 // seconds from which on it has all its tasks

	// Two tasks come to nothing by themselves: the agent of one asks, that of the other fails.
	asks, fails  = "app-2", "app-4"
	leaseOfNight = 5 * time.Second // in half of which an agent has to start
)

// A night alone: agents, shims, orch, its database and its daemons die or stop all along, one fault every few seconds, and
// nobody watches. At its end every task is done, or blocked for a reason that is true, nothing is held, nothing runs, and
// whatever was taken from the dead was told. ORCH_NIGHT_SECONDS makes it longer, ORCH_NIGHT_SEED repeats its
// choices.
func TestNightOfFaultsEndsEveryTaskWithItsTrueReason(t *testing.T) {
	t.Parallel()
	n := newNight(t)
	n.haunt()
	n.settle()
	n.judge()
}

// night is one such test.
type night struct {
	*stand

	began   time.Time
	seconds time.Duration
	tasks   int
	dice    *rand.Rand
	self    process.Identity
	bot     *telegramtest.Server

	server    *serving // its database is its own
	container *serving // a worker on the same data root, the first process of a pid namespace
	keys      []string // of tasks

	faults  map[string]int
	hits    map[uuid.UUID]string // runs, and what hit them
	let     []later
	left    []string // branches of the merge leases that dead processes left
	deaths  int      // of orch
	outages int      // of the database
	hung    *uuid.UUID
}

// later is what ends a fault that goes on over others.
type later struct {
	faults int // more of them
	do     func()
}

func newNight(t *testing.T) *night {
	t.Helper()
	n := &night{
		stand: &stand{t: t, dir: testdb.Dir(t), root: "root"}, began: time.Now(), bot: telegramtest.New(t),
		seconds: time.Duration(number(t, "ORCH_NIGHT_SECONDS", nightSeconds)) * time.Second, tasks: 50,
		faults: map[string]int{}, hits: map[uuid.UUID]string{},
	}
	if n.seconds < longNight*time.Second {
		n.tasks = 16
	}
	seed := uint64(number(t, "ORCH_NIGHT_SEED", int(time.Now().UnixNano())))
	n.dice = rand.New(rand.NewPCG(seed, seed))
	t.Logf("ORCH_NIGHT_SEED=%d", seed)
	var err error
	if n.self, err = process.Self(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.until("everything is gone", func() bool { return len(n.processes()) == 0 }) })
	n.furnish()
	n.bot.AnswerWith(refusals)
	n.server, n.container = n.serveOn(), n.contain()
	return n
}

// refusals are what the Bot API says instead of taking a message, now and then.
func refusals(try int) *telegramtest.Answer {
	var refusal telegramtest.Answer
	switch {
	case try%5 == 3:
		refusal = telegramtest.Refusal(http.StatusTooManyRequests, "Too Many Requests: retry later", 1)
	case try%7 == 6:
		refusal = telegramtest.Answer{Status: http.StatusBadGateway, Body: "<html>"}
	default:
		return nil
	}
	return &refusal
}

// number is a variable of the tests' own.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	if variables[variable] == "" {
		return usual
	}
	n, err := strconv.Atoi(variables[variable])
	if err != nil || n <= 0 {
		t.Fatalf("%s: %q isn't a number", variable, variables[variable])
	}
	return n
}

// furnish lays out what agents, tests and orch find. An agent works for so long that the slots are taken for most of the
// night. Two of one task at the same time would be noticed by the second.
func (n *night) furnish() {
	n.t.Helper()
	n.furnishNight()
	if err := os.Mkdir(filepath.Join(n.dir, "alive"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	const slots, share, second = 4, 0.5, 10
	steps := int(n.seconds.Seconds()*slots/float64(n.tasks)*share*second) + 1
	n.write("agent.sh", `D=`+n.dir+`
exec 9> "$D/alive/$ORCH_TASK"
flock -n 9 || echo "$ORCH_TASK" >> "$D/twice"
case $ORCH_TASK in
`+asks+`) echo '{"orch":{"status":"needs_input","question":"Which one?"}}'; exit ;;
`+fails+`) exit 3 ;;
esac
i=0
while [ $i -lt `+strconv.Itoa(steps)+` ]; do i=$((i + 1)); echo "step $i"; sleep 0.1; done
[ -e "$ORCH_TASK" ] || { echo "$ORCH_TASK" > "$ORCH_TASK" && git add . && git commit -qm "Do $ORCH_TASK"; }
`)
	n.write("test.sh", "sleep 0.5; ls app-*\n")
	n.repo = testgit.NewAt(n.t, filepath.Join(n.dir, "app"), map[string]string{"README": "app\n"})
	n.write("orch.yaml", `repos:
  - {name: app, path: `+n.repo.Dir+`, test: sh `+n.dir+`/test.sh}
agents:
  coder: {preset: command, command: sh `+n.dir+`/agent.sh}
`)
	n.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GORACE=atexit_sleep_ms=0",
		"ORCH_POSTGRES_BIN=" + os.Getenv("ORCH_POSTGRES_BIN"),
		"ORCH_ROOT=" + filepath.Join(n.dir, n.root), "ORCH_CONFIG=" + filepath.Join(n.dir, "orch.yaml"),
		"ORCH_KILL_GRACE_S=1", "ORCH_STOP_GRACE_S=2", "ORCH_MAX_CONCURRENCY=2", "ORCH_MIN_FREE_MB=0", "ORCH_POLL_S=0.2", "ORCH_HEARTBEAT_S=0.5",
		fmt.Sprintf("ORCH_LEASE_TTL_S=%g", leaseOfNight.Seconds()), "ORCH_MERGE_LOCK_TIMEOUT_S=10",
		"ORCH_REAPER_INTERVAL_S=1", "ORCH_RECONCILE_INTERVAL_S=1", "ORCH_SWEEP_EVERY_S=5",
		"ORCH_TELEGRAM_BOT_TOKEN=" + telegramtest.Token, "ORCH_TELEGRAM_CHAT_ID=" + telegramtest.Chat, "ORCH_TELEGRAM_API_URL=" + n.bot.URL,
	}
}

// serveOn starts orch with its private PostgreSQL, as whoever watches over it would after its death.
func (n *night) serveOn() *serving { return n.start("serve-night", n.dir).dial() }

// contain starts a worker in a container. It can't see the database's processes, and finds its socket.
func (n *night) contain() *serving {
	n.t.Helper()
	return n.startIn("work-night", n.dir, testhost.Container)
}

// private is how to reach the database that orch runs, once it does.
func (n *night) private() (cfg *pgx.ConnConfig) {
	n.t.Helper()
	n.until("the database is there", func() bool {
		var err error
		cfg, err = pgembed.Connect(root.PGDir(filepath.Join(n.dir, n.root)), pgembed.Database)
		return err == nil
	})
	return cfg
}

// haunt lets one fault after the other happen, and adds tasks meanwhile. Each kind comes once before any comes again, in
// an order of chance.
func (n *night) haunt() {
	n.t.Helper()
	var deck []fault
	end := time.Now().Add(n.seconds)
	for time.Now().Before(end) {
		n.addTasks(1 - time.Until(end).Seconds()/n.seconds.Seconds())
		if len(deck) == 0 {
			deck = n.shuffled()
		}
		next := slices.IndexFunc(deck, func(f fault) bool {
			what := f.do(n)
			if what != "" {
				n.faults[f.name]++
				n.t.Logf("%5.1f s: %s: %s", time.Since(n.began).Seconds(), f.name, what)
			}
			return what != ""
		})
		if next < 0 { // what is left finds nobody to hit
			deck = append(deck, n.shuffled()...)
		} else {
			deck = slices.Delete(deck, next, next+1)
		}
		n.tidy()
		calm(time.Duration(1000+n.dice.IntN(2000)) * time.Millisecond)
	}
}

// calm is the time between two faults.
func calm(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// addTasks keeps some in line until most of the night is over.
func (n *night) addTasks(passed float64) {
	n.t.Helper()
	const first, within = 6, 0.8
	for want := min(n.tasks, first+int(passed/within*float64(n.tasks))); len(n.keys) < want; {
		task, err := n.server.client.CreateTask(n.t.Context(), api.NewTask{Repo: new("app"), Title: "Do it"})
		if err != nil { // the database is away: the next time
			return
		}
		n.keys = append(n.keys, task.Key)
	}
}

// tidy ends the faults whose time has come, and lets go on who hung under a run that another has taken up.
func (n *night) tidy() {
	n.t.Helper()
	var kept []later
	for _, l := range n.let {
		if l.faults--; l.faults < 0 {
			l.do()
		} else {
			kept = append(kept, l)
		}
	}
	n.let = kept
	n.unhang()
	n.unlock()
}

// unlock is the person who does as told: a git that dies with its container leaves its lock file in the repository. Of a branch,
// which others write too, orch removes none, and names it.
func (n *night) unlock() {
	n.t.Helper()
	told := n.told("landing has a problem")
	err := filepath.WalkDir(filepath.Join(n.repo.Dir, ".git", "refs", "heads"), func(path string, _ fs.DirEntry, err error) error {
		named := func(l line) bool {
			return l.text("code") == "repository_locked" && strings.Contains(l.text("error"), path+" ")
		}
		if err == nil && strings.HasSuffix(path, ".lock") && slices.ContainsFunc(told, named) {
			n.t.Logf("%5.1f s: removed as told: %s", time.Since(n.began).Seconds(), path)
			n.faults["(lock files removed as told)"]++
			return os.Remove(path)
		}
		return nil // what goes away meanwhile isn't left
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// unhang lets whoever hangs at an agent's end go on once the run's result was used without it. What it writes then, it
// writes for a job that it has lost.
func (n *night) unhang() {
	n.t.Helper()
	if n.file("hanging") == "" {
		n.hung = nil
		return
	}
	if n.hung == nil {
		found := list(n, pgx.RowTo[uuid.UUID], `select r.id from runs r join jobs j on j.run_id = r.id and j.state = 'running'
			where r.state = 'finished' and r.consumed_at is null and r.purpose = 'agent' and r.finished_at < clock_timestamp() - interval '0.8 seconds'`)
		if len(found) == 1 {
			n.hung = &found[0]
		}
		return
	}
	if n.ask(`select count(*) from runs where id = $1 and consumed_at is not null`, *n.hung) == 1 {
		n.letGo()
	}
}

func (n *night) letGo() {
	n.hung = nil
	n.remove("hanging")
}

// settle lets orch work undisturbed until nothing is left to be done.
func (n *night) settle() {
	n.t.Helper()
	n.remove("hang")
	for _, l := range n.let {
		l.do()
	}
	n.let = nil
	n.until("the last tasks are added", func() bool {
		n.addTasks(1)
		return len(n.keys) == n.tasks
	})
	const open = `select format('%s is %s in %s, round %s; job %s %s: %s, attempt %s, epoch %s, phase %s, due in %s s', t.key, t.state, t.stage, t.round,
		j.id, j.kind, j.state, j.attempt, j.epoch, j.phase, round(extract(epoch from j.run_at - clock_timestamp())))
		from tasks t full join jobs j on j.task_id = t.id and j.state in ('queued', 'running')
		where t.state not in ('done', 'blocked', 'cancelled') or j.state in ('queued', 'running') and j.kind <> 'jobs.prune'`
	// An hour passes for the alerts that wait to be told together.
	const sumUp = `with waits as (update jobs set run_at = clock_timestamp()
			where kind = 'alert.telegram' and state = 'queued' and phase = 'alert_sum' and run_at > clock_timestamp() returning 1),
		aged as (update alerts_told set at = at - interval '1 hour' where exists (select from waits))
		select count(*)::int from waits`
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	least, end := math.MaxInt, time.Time{} // how much there is to do is chance: nothing may come to its end for too long
	for ; ; <-ticker.C {
		n.unhang()
		n.unlock()
		n.ask(sumUp)
		left := list(n, pgx.RowTo[string], open)
		if len(left) == 0 {
			break
		}
		if len(left) < least {
			least, end = len(left), time.Now().Add(patience)
		}
		if time.Now().After(end) {
			n.t.Fatalf("the night doesn't end:\n%s", strings.Join(left, "\n"))
		}
	}
	n.t.Logf("%5.1f s: nothing is left to be done", time.Since(n.began).Seconds())
}

// list asks the database, for as long as it takes to answer.
func list[T any](n *night, row pgx.RowToFunc[T], sql string, args ...any) (found []T) {
	n.t.Helper()
	n.until("the database answers", func() bool {
		conn, err := pgx.ConnectConfig(n.t.Context(), n.private())
		if err != nil {
			return false
		}
		defer database.Close(n.t.Context(), conn)
		rows, err := conn.Query(n.t.Context(), sql, args...)
		if err == nil {
			found, err = pgx.CollectRows(rows, row)
		}
		if err != nil && !db.Unreachable(err) {
			n.t.Fatalf("%s: %v", sql, err)
		}
		return err == nil
	})
	return found
}

// ask is list for a number.
func (n *night) ask(sql string, args ...any) int {
	n.t.Helper()
	return list(n, pgx.RowTo[int], sql, args...)[0]
}

// kill lets a process of orch die. Whoever hung in it hangs no more.
func (n *night) kill(victim *serving, pid int) {
	n.t.Helper()
	victim.end(unix.SIGKILL)
	n.deaths++
	if n.file("hanging") == strconv.Itoa(pid) {
		n.letGo()
	}
}
