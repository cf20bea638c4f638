package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/api"
	"orch/internal/testdb"
)

const (
	chaosLogCapMB = 4
	chaosSlots    = 6

	// betweenRestarts leaves orch the time to get anything done at all: whose worker dies six times under it is in a crash loop.
	betweenRestarts = 4 * time.Second
)

// TestChaosOfAgentsEndsEveryTaskWithItsTrueReason lets agents misbehave in every way while orch, their shims and they
// themselves are killed all along. ORCH_CHAOS_TASKS and ORCH_CHAOS_SECONDS make it longer.
//
//nolint:paralleltest // it takes the whole machine
func TestChaosOfAgentsEndsEveryTaskWithItsTrueReason(t *testing.T) {
	c := newChaos(t)
	c.addTasks()
	c.disturb()
	c.settle()
	c.judge()
}

// chaos is one such test.
type chaos struct {
	t       *testing.T
	p       *place
	s       *server
	store   *store
	conn    *pgx.Conn
	tasks   int
	seconds time.Duration
	kinds   map[string]chaosKind // by task
	hit     map[string]bool      // tasks whose agent or shim was killed: no more than once, so that attempts are left
	shot    map[uuid.UUID]string // runs, and what of them
	diskMax int64

	restarted time.Time // when orch was started last

	kills, terms, agents, shims int
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{
		t: t, kinds: map[string]chaosKind{}, hit: map[string]bool{}, shot: map[uuid.UUID]string{},
		tasks: number(t, "ORCH_CHAOS_TASKS", len(chaosKinds)), seconds: time.Duration(number(t, "ORCH_CHAOS_SECONDS", 8)) * time.Second,
	}
	flood := "50M"
	if c.tasks >= 100 {
		flood = "1G"
	}
	c.p = newPlace(t, "")
	c.p.write("agent.sh", chaosAgent(c.p.dir, flood))
	for _, dir := range []string{"kinds", "starts", "said", "ends", "refused"} {
		if err := os.Mkdir(filepath.Join(c.p.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.p.write("root/orch.yaml", c.repositories())
	c.store = c.p.onDatabase(testdb.Empty(t),
		"ORCH_MAX_CONCURRENCY="+strconv.Itoa(chaosSlots), "ORCH_RUN_LOG_CAP_MB="+strconv.Itoa(chaosLogCapMB))
	c.conn = c.store.connect()
	c.s = c.p.serve()
	return c
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

// repositories makes one for each agent: what one of them meets pauses it for all its tasks.
func (c *chaos) repositories() string {
	c.t.Helper()
	var repos, agents, pipelines strings.Builder
	for _, name := range []string{"app", "slow", "meter", "locked"} {
		at := *c.p
		at.repo = filepath.Join(c.p.dir, name)
		if name != "app" {
			at.write(name+"/test.sh", c.p.read("app/test.sh"))
			at.git("init", "-q", "-b", "main")
			at.git("add", "-A")
			at.git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "first")
		}
		timeout := "5m"
		if name == "slow" {
			timeout = "2s"
		}
		fmt.Fprintf(&repos, "  - {name: %s, path: %s, pipeline: %s, test: sh test.sh}\n", name, at.repo, name)
		fmt.Fprintf(&agents, "  %s: {preset: command, command: sh %s/agent.sh, timeout: %s}\n", name, c.p.dir, timeout)
		fmt.Fprintf(&pipelines, "  %s: [{stage: development, agent: %s, gates: [commits]}, {stage: deploy, gates: [branch_mergeable]}]\n", name, name)
	}
	return "repos:\n" + repos.String() + "agents:\n" + agents.String() + "pipelines:\n" + pipelines.String()
}

func (c *chaos) addTasks() {
	c.t.Helper()
	kinds := slices.DeleteFunc(slices.Clone(chaosKinds), func(k chaosKind) bool { return k.slow && c.tasks < 2*len(chaosKinds) })
	for n := range c.tasks {
		k := kinds[n%len(kinds)]
		task, err := c.s.client.CreateTask(c.t.Context(), api.NewTask{Repo: &k.repo, Title: k.name})
		if err != nil {
			c.t.Fatal(err)
		}
		c.kinds[task.Key] = k
		c.p.write("kinds/"+task.Key, strings.ReplaceAll(k.name, "'", ""))
		if k.once {
			kinds = slices.DeleteFunc(kinds, func(other chaosKind) bool { return other.name == k.name })
		}
	}
}

// disturb does one bad thing after the other.
func (c *chaos) disturb() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.seconds)
	defer cancel()
	for ctx.Err() == nil {
		c.measureDisk()
		dice := rand.IntN(10)
		if dice >= 7 && time.Since(c.restarted) < betweenRestarts {
			dice = rand.IntN(7)
		}
		switch {
		case dice < 4:
			c.shoot("agent")
		case dice < 6:
			c.shoot("shim")
		case dice < 7:
			c.shoot("both")
		case dice < 9:
			c.kills++
			c.restart(syscall.SIGKILL)
		default:
			c.terms++
			c.restart(syscall.SIGTERM)
		}
		pause(ctx, 200*time.Millisecond+rand.N(600*time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (c *chaos) restart(signal syscall.Signal) {
	c.t.Helper()
	if err := c.s.end(signal); err != nil && signal == syscall.SIGTERM {
		c.t.Errorf("orch serve ended with %v after SIGTERM", err)
	}
	c.s, c.restarted = c.p.serve(), time.Now()
}

// shoot kills an agent, a shim, or both of a run. They are told from later owners of their pids by the run's mark, and by
// the run's directory.
func (c *chaos) shoot(what string) {
	c.t.Helper()
	type victim struct {
		ID        uuid.UUID
		Task      string
		Shim, PID int
	}
	rows, err := c.conn.Query(c.t.Context(), `select r.id, t.key, r.shim_pid, r.pid from runs r join tasks t on t.id = r.task_id
		where r.state = 'running' and r.purpose = 'agent' and r.pid is not null and r.shim_pid is not null order by random()`)
	if err != nil {
		c.t.Fatal(err)
	}
	victims, err := pgx.CollectRows(rows, pgx.RowToStructByPos[victim])
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range victims {
		if c.hit[v.Task] {
			continue
		}
		agent := what != "shim" && strings.Contains(environment(v.PID), "ORCH_RUN="+v.ID.String())
		shim := what != "agent" && strings.Contains(arguments(v.Shim), v.ID.String())
		if !agent && !shim {
			continue
		}
		c.hit[v.Task], c.shot[v.ID] = true, what
		if shim {
			c.shims++
			_ = syscall.Kill(v.Shim, syscall.SIGKILL)
		}
		if agent {
			c.agents++
			_ = syscall.Kill(v.PID, syscall.SIGKILL)
		}
		return
	}
}

func environment(pid int) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return string(content)
}

func arguments(pid int) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(content)
}

// settle lets orch work undisturbed until every task has its end, and stops it.
func (c *chaos) settle() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience+2*c.seconds+time.Duration(c.tasks)*6*time.Second) // only how long is too long
	defer cancel()
	for left := -1; left != 0; pause(ctx, 100*time.Millisecond) {
		c.measureDisk()
		err := c.conn.QueryRow(ctx, `select (select count(*) from tasks where state not in ('done', 'blocked'))
			+ (select count(*) from jobs where state in ('queued', 'running') and task_id is not null)`).Scan(&left)
		if err != nil {
			c.t.Fatalf("tasks don't end: %v\n%s", err, strings.Join(c.ask(`
				select format('%s is %s in %s, round %s; job %s %s: %s, attempt %s, phase %s', t.key, t.state, t.stage, t.round, j.id, j.kind, j.state, j.attempt, j.phase)
				from tasks t left join jobs j on j.task_id = t.id and j.state in ('queued', 'running')
				where t.state not in ('done', 'blocked') or j.id is not null`), "\n"))
		}
	}
}

// ask returns rows of text.
func (c *chaos) ask(sql string) []string {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	conn, err := pgx.ConnectConfig(ctx, c.store.config)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		c.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// measureDisk keeps the most that logs of runs have had.
func (c *chaos) measureDisk() {
	var most int64
	runs, _ := filepath.Glob(filepath.Join(c.p.root, "runs", "*"))
	for _, run := range runs {
		var size int64
		_ = filepath.WalkDir(run, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && strings.HasPrefix(filepath.Base(path), "log") {
				if info, err := entry.Info(); err == nil {
					size += info.Size()
				}
			}
			return nil
		})
		most = max(most, size)
	}
	c.diskMax = max(c.diskMax, most)
}
