package view_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent"
	"orch/internal/agent/usage"
	"orch/internal/app/catalog"
	"orch/internal/app/view"
	"orch/internal/config"
	"orch/internal/forge/local"
	"orch/internal/git/gitcmd"
	"orch/internal/httpapi"
	"orch/internal/merge/lease"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/pause"
	"orch/internal/queue/tally"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSources has two configured repositories, auto and manual, named for what orch.yaml says of landing; of all
// repositories only those in gated are landed on.
func newSources(t *testing.T, gated ...string) (sources view.Sources, auto *testgit.Repo) {
	t.Helper()
	return sourcesOn(t, testdb.New(t), gated...)
}

func sourcesOn(t *testing.T, pool *pgxpool.Pool, gated ...string) (sources view.Sources, auto *testgit.Repo) {
	t.Helper()
	dir := t.TempDir()
	auto = testgit.New(t, map[string]string{"README": "auto\n"})
	manual := testgit.New(t, map[string]string{"README": "manual\n"})
	file := filepath.Join(dir, "orch.yaml")
	content := fmt.Sprintf("repos:\n  - {name: auto, path: %s, test: none}\n  - {name: manual, path: %s, test: none, land: manual}\n"+
		"agents: {coder: {preset: command, command: ./agent}}\n", auto.Dir, manual.Dir)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := catalog.New(config.Data{File: file, FileGiven: true}, config.Merge{GateRepos: gated}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	program, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := task.NewStore(pool, task.StoreConfig{
		Catalog: known, StopLandingTx: func(context.Context, pgx.Tx, int64) (bool, error) { return true, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := agent.New(agent.Config{Pool: pool, Dir: dir, RootID: uuid.New(), Self: self, Shim: []string{"orch", "shim"}})
	if err != nil {
		t.Fatal(err)
	}
	return view.Sources{
		Catalog: known, Forge: local.New(program, local.Config{}), Jobs: queue.New(pool, queue.Config{}),
		Overview: overview.NewReader(pool), Pauses: pause.NewStore(pool), Tally: tally.NewStore(pool),
		Tasks: store, Runs: runs, Leases: lease.NewStore(pool, lease.Config{}), Usage: usage.NewStore(pool),
	}, auto
}

// A task says whether it will be landed: as it was asked, else as its repository and ORCH_MERGE_GATE_REPOS have it.
func TestCreateTask_Land(t *testing.T) {
	t.Parallel()
	own := testgit.New(t, map[string]string{"README": "own\n"})
	adhoc := &httpapi.Adhoc{Path: own.Dir, NoTest: true, AgentCommand: "./agent"}
	all, _ := newSources(t)
	some, _ := newSources(t, "manual")
	for name, c := range map[string]struct {
		sources view.Sources
		task    httpapi.NewTask
		want    bool
	}{
		"auto":                 {all, httpapi.NewTask{Repo: "auto"}, true},
		"auto, not wanted":     {all, httpapi.NewTask{Repo: "auto", Land: new(false)}, false},
		"manual":               {all, httpapi.NewTask{Repo: "manual"}, false},
		"manual, wanted":       {all, httpapi.NewTask{Repo: "manual", Land: new(true)}, true},
		"adhoc":                {all, httpapi.NewTask{Adhoc: adhoc}, true},
		"auto, left out":       {some, httpapi.NewTask{Repo: "auto"}, false},
		"manual, not left out": {some, httpapi.NewTask{Repo: "manual"}, false},
		"adhoc, left out":      {some, httpapi.NewTask{Adhoc: adhoc}, false},
	} {
		c.task.Title, c.task.Source = name, "cli"
		got, err := view.Tasks{Sources: c.sources}.CreateTask(t.Context(), c.task)
		if err != nil || got.Land != c.want {
			t.Errorf("%s: land %v, %v", name, got.Land, err)
		}
	}
}

// What hinders only the landing hinders no task that isn't going to be landed.
func TestCreateTask_DirtyCheckout(t *testing.T) {
	t.Parallel()
	for want, gated := range map[string][]string{"checkout_dirty": nil, "": {"manual"}} {
		sources, auto := newSources(t, gated...)
		auto.Write(map[string]string{"README": "changed\n"})
		_, err := view.Tasks{Sources: sources}.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: "x", Source: "cli"})
		got := ""
		if refused, ok := errors.AsType[*httpapi.RefusedError](err); ok {
			got = refused.Code
		}
		if got != want || (want == "") != (err == nil) {
			t.Errorf("only %v are landed on: %v", gated, err)
		}
	}
}

// Who asks for what isn't there is told what was asked for.
func TestNotFound(t *testing.T) {
	t.Parallel()
	sources, _ := newSources(t)
	tasks, jobs, runs := view.Tasks{Sources: sources}, view.Jobs{Sources: sources}, view.Runs{Sources: sources}
	ctx, id := t.Context(), uuid.New()
	for name, c := range map[string]struct {
		ask  func() error
		want string
	}{
		"task":        {func() error { _, err := tasks.GetTask(ctx, "nope-1"); return err }, "task nope-1"},
		"events":      {func() error { _, err := tasks.TaskEvents(ctx, "nope-1", httpapi.EventFilter{}); return err }, "task nope-1"},
		"cancel":      {func() error { _, err := tasks.CancelTask(ctx, "nope-1", "cli"); return err }, "task nope-1"},
		"retry":       {func() error { _, err := tasks.RetryTask(ctx, "nope-1", "cli", ""); return err }, "task nope-1"},
		"task's jobs": {func() error { _, err := jobs.ListJobs(ctx, httpapi.JobFilter{Task: "nope-1"}); return err }, "task nope-1"},
		"job":         {func() error { _, err := jobs.GetJob(ctx, 9); return err }, "job 9"},
		"cancel job":  {func() error { _, err := jobs.CancelJob(ctx, 9, "cli"); return err }, "job 9"},
		"retry job":   {func() error { _, err := jobs.RetryJob(ctx, 9, "cli"); return err }, "job 9"},
		"run":         {func() error { _, err := runs.GetRun(ctx, id); return err }, "run " + id.String()},
		"log":         {func() error { _, _, err := runs.LogBounds(ctx, id); return err }, "log of the run " + id.String()},
	} {
		refused, ok := errors.AsType[*httpapi.RefusedError](c.ask())
		if !ok || refused.Status != http.StatusNotFound || refused.Detail != "there is no "+c.want {
			t.Errorf("%s: %v", name, refused)
		}
	}
}
