package usage_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/agent/usage"
	"orch/internal/process"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a database with two tasks.
type bench struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *usage.Store
	root  uuid.UUID
	tasks [2]int64
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t)}
	b.store = usage.NewStore(b.pool)
	b.root = queuetest.Root(t, b.pool)
	b.exec(`insert into repositories (name, location) values ('demo', '/demo')`)
	for n, key := range []string{"demo-1", "demo-2"} {
		err := b.pool.QueryRow(t.Context(), `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
			values ($1, 'demo', 'Title', 'cli', 'orch/' || $1, 'main', 'default', 'development') returning id`, key).Scan(&b.tasks[n])
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// begins has a run begin that has used so much by now.
func (b *bench) begins(task int, agent string, cost *float64, tokens int64) uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	b.exec(`insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, root_id, host, boot_id, pid_namespace,
			state, cost_usd, input_tokens, output_tokens, turns, created_at)
		values ($1, $2, 1, 1, 'agent', $7, 'development', 1, 1, $3, $4, 'h', 'b', 'n', 'running', $5::float8, $6, 1, 2, clock_timestamp())`,
		id, b.tasks[task], agent, b.root, cost, tokens, id.String())
	return id
}

// ends notes the end of a run that has used so much, as often as it is called.
func (b *bench) ends(id uuid.UUID, o outcome.Outcome, cost *float64, tokens int64) {
	b.t.Helper()
	err := ledger.New(ledger.Config{Pool: b.pool, Root: b.root}).NoteEnd(b.t.Context(), id, ledger.End{
		Exit: process.Exit{Why: process.WhyExited}, Outcome: o,
		Usage: ledger.Usage{CostUSD: cost, InputTokens: tokens, OutputTokens: 1, Turns: 2},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// ran has a run begin and end.
func (b *bench) ran(task int, agent string, o outcome.Outcome, cost *float64, tokens int64) {
	b.t.Helper()
	b.ends(b.begins(task, agent, cost, tokens), o, cost, tokens)
}

func (b *bench) spent(task int, since time.Time) usage.Spent {
	b.t.Helper()
	spent, err := b.store.Spent(b.t.Context(), b.tasks[task], "coder", since)
	if err != nil {
		b.t.Fatal(err)
	}
	return spent
}

func (b *bench) now() (now time.Time) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
		b.t.Fatal(err)
	}
	return now
}

func TestEndIsCountedOnceInTheDay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.begins(0, "coder", new(1.25), 100)
	living := b.spent(0, time.Time{}).Day
	if living.Runs != 1 || living.CostUSD != 1.25 || living.Tokens() != 101 || living.Failed != 0 {
		t.Errorf("while it lives: %+v", living)
	}
	b.ends(run, outcome.AgentFailed, new(1.25), 100)
	b.ends(run, outcome.OK, new(1.25), 100)
	b.ran(0, "coder", outcome.Quota, nil, 50)
	want := usage.Usage{Runs: 2, Failed: 1, CostUSD: 1.25, Unpriced: 1, InputTokens: 150, OutputTokens: 2, Turns: 4}
	today, err := b.store.Today(t.Context())
	if err != nil || len(today) != 1 || today["coder"] != want {
		t.Errorf("today %+v, %v", today, err)
	}
	if spent := b.spent(0, time.Time{}); spent.Day != want || spent.Agent != want || spent.Task != want {
		t.Errorf("spent %+v", spent)
	}
	if used, err := b.store.Task(t.Context(), b.tasks[0]); err != nil || used != want {
		t.Errorf("the task's %+v, %v", used, err)
	}
	b.exec(`update agent_days set day = day - 1`)
	if spent := b.spent(0, time.Time{}); spent.Day != (usage.Usage{}) || spent.Task != want {
		t.Errorf("the next day: %+v", spent)
	}
}

func TestUsageKeepsTasksAndAgentsApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ran(0, "coder", outcome.OK, new(1.0), 0)
	b.begins(1, "coder", new(2.0), 0)
	b.ran(1, "tester", outcome.OK, new(4.0), 0)
	spent := b.spent(1, time.Time{})
	if spent.Task.CostUSD != 6 || spent.Agent.CostUSD != 3 || spent.Day.CostUSD != 7 || spent.Last.CostUSD != 4 {
		t.Errorf("spent %+v", spent)
	}
	today, err := b.store.Today(t.Context())
	if err != nil || today["coder"].CostUSD != 3 || today["tester"].CostUSD != 4 || today["coder"].Runs != 2 {
		t.Errorf("today %+v, %v", today, err)
	}
}

func TestRunsThatNeverStartedAndGatesDontCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ran(0, "coder", outcome.NeverStarted, nil, 0)
	gate := b.begins(0, "", nil, 0)
	b.exec(`update runs set purpose = 'gate' where id = $1`, gate)
	b.ends(gate, outcome.OK, nil, 0)
	if spent := b.spent(0, time.Time{}); spent != (usage.Spent{}) {
		t.Errorf("spent %+v", spent)
	}
}

func TestBudgetBeginsAnewWhenAPersonAllowsMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ran(0, "coder", outcome.OK, new(9.0), 0)
	allowed := b.now()
	if spent := b.spent(0, allowed); spent.Task.Runs != 0 || spent.Last.Runs != 0 || spent.Day.CostUSD != 9 {
		t.Errorf("spent %+v", spent)
	}
	b.ran(0, "coder", outcome.OK, new(2.0), 0)
	if spent := b.spent(0, allowed); spent.Task.CostUSD != 2 || spent.Last.CostUSD != 2 || spent.Day.CostUSD != 11 {
		t.Errorf("spent %+v", spent)
	}
}

func TestDaysAndTasksCountTheSameFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	all := []outcome.Outcome{
		outcome.OK, outcome.AgentFailed, outcome.SetupFailed, outcome.Timeout, outcome.Stalled, outcome.Auth, outcome.Quota, outcome.RateLimited,
		outcome.NeedsInput, outcome.Killed, outcome.Crashed, outcome.NotFound, outcome.Orphaned, outcome.Interrupted, outcome.Cancelled,
	}
	for _, o := range all {
		b.ran(0, "coder", o, nil, 0)
	}
	if spent := b.spent(0, time.Time{}); spent.Task != spent.Day || spent.Task.Runs != len(all) || spent.Task.Failed != 8 {
		t.Errorf("task %+v, day %+v", spent.Task, spent.Day)
	}
}
