package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/api"
	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/app/view"
	"orch/internal/httpapi"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/testdb"
)

func agentNamed(name string) httpapi.Held { return httpapi.Held{Scope: api.PauseAgent, Name: name} }

// ran has an agent's run of the task end that has cost so much.
func ran(t *testing.T, pool *pgxpool.Pool, taskID int64, agent string, cost float64) {
	t.Helper()
	root := queuetest.Root(t, pool)
	id := uuid.New()
	_, err := pool.Exec(t.Context(), `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, root_id, host, boot_id, pid_namespace, state, cost_usd)
		values ($1, $2, 1, 1, 'agent', $3, 'development', 1, 1, $4, $5, 'h', 'b', 'n', 'running', $6::float8)`, id, taskID, id.String(), agent, root, cost)
	if err != nil {
		t.Fatal(err)
	}
	err = ledger.New(ledger.Config{Pool: pool, Root: root}).NoteEnd(t.Context(), id, ledger.End{
		Exit: process.Exit{Why: process.WhyExited}, Outcome: outcome.OK, Usage: ledger.Usage{CostUSD: &cost},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// meets pauses the agent coder as the end of a run does that met its quota.
func meets(t *testing.T, pool *pgxpool.Pool, until time.Time) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := pause.AgentTx(t.Context(), tx, pause.Pause{
			Scope: pause.Agent, Name: "coder", Reason: "you've hit your limit", Actor: "orch", Code: "quota", Until: &until,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestListAgents(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	created := taskWithJob(t, sources, "x")
	ran(t, pool, created.ID, "coder", 1.5)
	ran(t, pool, created.ID, "stranger", 2)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	meets(t, pool, until)
	hold(t, view.Jobs{Sources: sources}, agentNamed("coder"), "mine now")
	resume(t, view.Jobs{Sources: sources}, agentNamed("coder"), true)
	meets(t, pool, until)
	list, err := view.Agents{Sources: sources}.ListAgents(t.Context())
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	coder, stranger := list.Items[0], list.Items[1]
	if coder.Name != "coder" || *coder.Preset != "command" || coder.Program != nil || !coder.ReportsCost || coder.Resumes || coder.Today.Used.CostUsd != 1.5 {
		t.Errorf("coder %+v", coder)
	}
	if p := coder.Paused; p == nil || *p.Code != "quota" || !p.Until.Equal(until) || p.Actor != "orch" {
		t.Errorf("paused %+v", p)
	}
	if stranger.Name != "stranger" || stranger.Preset != nil || stranger.Paused != nil || stranger.Today.Used.Runs != 1 {
		t.Errorf("stranger %+v", stranger)
	}
	if list.Today.Used.CostUsd != 3.5 || list.Today.Used.Runs != 2 || *list.Today.MaxCostUsd != 25 {
		t.Errorf("today %+v", list.Today)
	}
}

// What a program said when it met its limit is for those who ask for the agents, not for every poller.
func TestQueueShowsAgentsThatArePausedByCode(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	snapshot := snapshotOn(t, pool)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	meets(t, pool, until)
	hold(t, view.Jobs{Sources: snapshot.Sources}, agentNamed("coder"), "mine now")
	q, err := snapshot.Queue(t.Context())
	if err != nil || len(q.Agents) != 1 || *q.Agents[0].Reason != "paused" || q.Agents[0].PausedUntil != nil {
		t.Fatalf("by a person: %+v, %v", q.Agents, err)
	}
	resume(t, view.Jobs{Sources: snapshot.Sources}, agentNamed("coder"), true)
	meets(t, pool, until)
	q, err = snapshot.Queue(t.Context())
	if err != nil || *q.Agents[0].Reason != "quota" || !q.Agents[0].PausedUntil.Equal(until) {
		t.Fatalf("by a run: %+v, %v", q.Agents, err)
	}
	if q.Paused[0].Name != "coder" || q.Paused[0].Reason != "quota" || *q.Paused[0].Code != "quota" {
		t.Errorf("paused %+v", q.Paused)
	}
}

func TestPause_Agents(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	jobs := view.Jobs{Sources: sources}
	created := taskWithJob(t, sources, "x")
	_, err := jobs.Pause(t.Context(), httpapi.NewPause{Held: agentNamed("codre"), Reason: "x", Actor: "cli"})
	if err == nil || !strings.Contains(err.Error(), "codre") {
		t.Errorf("a name that means nothing: %v", err)
	}
	hold(t, jobs, agentNamed("coder"), "its provider is down")
	paused := func() []api.Pause {
		t.Helper()
		detail, err := view.Tasks{Sources: sources}.GetTask(t.Context(), created.Key)
		if err != nil {
			t.Fatal(err)
		}
		return detail.Paused
	}
	if got := paused(); len(got) != 0 { // whether the pause holds it back shows only when somebody looks
		t.Errorf("before anybody looked: %+v", got)
	}
	l := claim(t, sources, pool, task.LaneAgents, task.KindStage)
	if err := l.Release(t.Context(), queue.Release{After: time.Hour, WaitingFor: pause.WaitingForAgent("coder")}); err != nil {
		t.Fatal(err)
	}
	if got := paused(); len(got) != 1 || got[0].Scope != api.PauseAgent || got[0].Name != "coder" {
		t.Errorf("paused %+v", got)
	}
	resume(t, jobs, agentNamed("coder"), true)
	claim(t, sources, pool, task.LaneAgents, task.KindStage) // at once
}

func TestGetTask_Budget(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	tasks := view.Tasks{Sources: sources}
	created, err := tasks.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: "x", Source: "cli", MaxCostUSD: new(7.5)})
	if err != nil {
		t.Fatal(err)
	}
	ran(t, pool, created.ID, "coder", 1.5)
	detail, err := tasks.GetTask(t.Context(), created.Key)
	if err != nil {
		t.Fatal(err)
	}
	if b := detail.Budget; b.Used.Runs != 1 || b.Used.CostUsd != 1.5 || *b.MaxCostUsd != 7.5 || *b.MaxRuns != 20 || b.MaxTokens != nil {
		t.Errorf("budget %+v", b)
	}
}
