package view_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/api"
	"orch/internal/app/view"
	"orch/internal/httpapi"
	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

func lane(name string) httpapi.Held { return httpapi.Held{Scope: api.PauseLane, Name: name} }
func repo(name string) httpapi.Held { return httpapi.Held{Scope: api.PauseRepo, Name: name} }

func hold(t *testing.T, jobs view.Jobs, what httpapi.Held, reason string) api.Pause {
	t.Helper()
	paused, err := jobs.Pause(t.Context(), httpapi.NewPause{Held: what, Reason: reason, Actor: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	return paused
}

func resume(t *testing.T, jobs view.Jobs, what httpapi.Held, want bool) {
	t.Helper()
	if was, err := jobs.Resume(t.Context(), what); err != nil || was != want {
		t.Errorf("resume %s %s: %v, %v", what.Scope, what.Name, was, err)
	}
}

// What holds nothing back is no pause: who mistypes a name learns which there are.
func TestPause_NamesThatMeanNothing(t *testing.T) {
	t.Parallel()
	sources, _ := newSources(t)
	jobs := view.Jobs{Sources: sources}
	for what, names := range map[httpapi.Held]string{
		lane("agent"):  `no lane is called "agent"; there are: agents, merge, system`,
		repo("nope"):   `no repository is called "nope"; there are: auto, manual`,
		repo("agents"): `no repository is called "agents"; there are: auto, manual`,
	} {
		_, pauseErr := jobs.Pause(t.Context(), httpapi.NewPause{Held: what, Reason: "x", Actor: "cli"})
		_, resumeErr := jobs.Resume(t.Context(), what)
		for _, err := range []error{pauseErr, resumeErr} {
			refused, ok := errors.AsType[*httpapi.RefusedError](err)
			if !ok || len(refused.Fields) != 1 || refused.Fields[0].Field != string(what.Scope) || refused.Fields[0].Message != names {
				t.Errorf("%s %s: %v", what.Scope, what.Name, err)
			}
		}
	}
	if paused, err := sources.Pauses.Pauses(t.Context()); err != nil || len(paused) != 0 {
		t.Errorf("paused %+v, %v", paused, err)
	}
}

// Beside those of orch.yaml there are repositories that a task brought along, and those that another server has.
func TestPause_Names(t *testing.T) {
	t.Parallel()
	sources, _ := newSources(t)
	jobs := view.Jobs{Sources: sources}
	own := testgit.New(t, map[string]string{"README": "own\n"})
	created, err := view.Tasks{Sources: sources}.CreateTask(t.Context(), httpapi.NewTask{
		Title: "x", Source: "cli", Adhoc: &httpapi.Adhoc{Path: own.Dir, NoTest: true, AgentCommand: "./agent"},
	})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := pause.Pause{Scope: pause.Repo, Name: "elsewhere", Reason: "first", Actor: "api"}
	if err := sources.Pauses.Pause(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	for _, what := range []httpapi.Held{lane("agents"), lane("merge"), lane("system"), repo("auto"), repo(created.Repo), repo("elsewhere")} {
		resume(t, jobs, what, what.Name == "elsewhere")
		if what.Name == "elsewhere" {
			if err := sources.Pauses.Pause(t.Context(), elsewhere); err != nil {
				t.Fatal(err)
			}
		}
		got := hold(t, jobs, what, "because")
		if got.Scope != what.Scope || got.Name != what.Name || got.Reason != "because" || got.Actor != "cli" || got.Since.IsZero() {
			t.Errorf("paused %+v", got)
		}
		if again := hold(t, jobs, what, "another reason"); again.Reason != "another reason" {
			t.Errorf("again: %+v", again)
		}
		resume(t, jobs, what, true)
	}
}

// taskWithJob adds a task for the repository auto, and tells its one job to whoever claims.
func taskWithJob(t *testing.T, sources view.Sources, title string) api.Task {
	t.Helper()
	created, err := view.Tasks{Sources: sources}.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: title, Source: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// claim claims one job of a lane, as a worker of a root of its own that serves auto.
func claim(t *testing.T, sources view.Sources, pool *pgxpool.Pool, lane, kind string) *queue.Lease {
	t.Helper()
	worker := queuetest.Worker(queuetest.Root(t, pool))
	leases, err := sources.Jobs.Claim(t.Context(), queue.ClaimRequest{
		Worker: worker, Lane: lane, Kinds: []string{kind}, Limit: 1, Repos: []string{"auto"},
	})
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d jobs, %v", len(leases), err)
	}
	return leases[0]
}

// A task that waits because of a pause says so, and of which; one that was begun goes on.
func TestGetTask_Paused(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	tasks, jobs := view.Tasks{Sources: sources}, view.Jobs{Sources: sources}
	key := taskWithJob(t, sources, "x").Key
	reasons := func() string {
		detail, err := tasks.GetTask(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if detail.Paused == nil {
			t.Error("no list")
		}
		var texts []string
		for _, p := range detail.Paused {
			texts = append(texts, string(p.Scope)+" "+p.Name+": "+p.Reason+" ("+p.Actor+")")
		}
		return strings.Join(texts, ", ")
	}
	expect := func(when, want string) {
		t.Helper()
		if got := reasons(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("nothing is paused", "")
	hold(t, jobs, lane("merge"), "not this one")
	hold(t, jobs, repo("manual"), "nor this one")
	expect("others are paused", "")
	hold(t, jobs, lane("agents"), "budget is spent")
	expect("its lane is paused", "lane agents: budget is spent (cli)")
	hold(t, jobs, repo("auto"), "freeze")
	expect("its repository too", "lane agents: budget is spent (cli), repo auto: freeze (cli)")
	resume(t, jobs, lane("agents"), true)
	expect("its repository only", "repo auto: freeze (cli)")
	resume(t, jobs, repo("auto"), true)
	l := claim(t, sources, pool, task.LaneAgents, task.KindStage)
	hold(t, jobs, lane("agents"), "too late")
	expect("it runs", "")
	err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.PinTx(t.Context(), tx, uuid.New()) })
	if err == nil {
		err = l.Release(t.Context(), queue.Release{})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect("its run goes on without a worker", "")
}

// end ends a job that is claimed as failed.
func fail(t *testing.T, l *queue.Lease, text string) {
	t.Helper()
	err := l.Tx(t.Context(), func(tx pgx.Tx) error {
		return l.FailTx(t.Context(), tx, queue.Failure{Code: "test_failure", Message: text})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, sources view.Sources, in queue.Insert) int64 {
	t.Helper()
	queued, err := sources.Jobs.Enqueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return queued.ID
}

func TestRetryJob(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	jobs := view.Jobs{Sources: sources}
	refused := func(id int64, code, text string) {
		t.Helper()
		_, err := jobs.RetryJob(t.Context(), id, "cli")
		if r, ok := errors.AsType[*httpapi.RefusedError](err); !ok || r.Code != code || !strings.Contains(r.Detail, text) {
			t.Errorf("want %s, got %v", code, err)
		}
	}
	created := taskWithJob(t, sources, "x")
	plain := queue.Insert{Kind: "plain", Lane: task.LaneSystem, DedupeKey: "plain"}
	first := enqueue(t, sources, plain)
	refused(first, "job_not_failed", "failed or was cancelled")
	fail(t, claim(t, sources, pool, task.LaneSystem, "plain"), "x")
	again, err := jobs.RetryJob(t.Context(), first, "cli")
	if err != nil || again.State != api.JobQueued || again.MaxAttempts != again.Attempt+3 && again.MaxAttempts <= again.Attempt {
		t.Errorf("retried: %+v, %v", again, err)
	}
	fail(t, claim(t, sources, pool, task.LaneSystem, "plain"), "x")
	enqueue(t, sources, plain)
	refused(first, "job_has_twin", "another job")
	retire := enqueue(t, sources, queue.Insert{Kind: task.KindRetire, Lane: task.LaneSystem, TaskID: created.ID, Args: task.RetireArgs{TaskID: created.ID}})
	fail(t, claim(t, sources, pool, task.LaneSystem, task.KindRetire), "x")
	if again, err := jobs.RetryJob(t.Context(), retire, "cli"); err != nil || again.State != api.JobQueued {
		t.Errorf("clean-up retried: %+v, %v", again, err)
	}
	l := claim(t, sources, pool, task.LaneAgents, task.KindStage)
	refused(l.Job().ID, "job_of_task", "`orch task retry "+created.Key+"`")
	fail(t, l, "x")
	refused(l.Job().ID, "job_of_task", "`orch task retry "+created.Key+"`")
}
