package view_test

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent"
	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/app/view"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
	"orch/internal/process"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// runWorld is a data root with runs.
type runWorld struct {
	t    *testing.T
	pool *pgxpool.Pool
	root uuid.UUID
	dir  string
	runs view.Runs
	task int64
}

func newRunWorld(t *testing.T) *runWorld {
	t.Helper()
	w := &runWorld{t: t, pool: testdb.New(t), dir: t.TempDir()}
	w.root = queuetest.Root(t, w.pool)
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	sources, _ := sourcesOn(t, w.pool)
	sources.Runs, err = agent.New(agent.Config{
		Pool: w.pool, Dir: w.dir, RootID: w.root, Self: self, Shim: []string{"orch", "shim"}, PortBase: 20000, PortsPerRun: 10,
		Environ: []string{"PATH=/usr/bin", "API_KEY=sesame-open", "OTHER=not-for-it", "ORCH_ROOT=/var/lib/orch"},
		Secrets: []process.Secret{{Name: "ORCH_API_TOKEN", Value: "hunter2hunter2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.runs = view.Runs{Sources: sources}
	w.task = taskWithJob(t, sources, "x").ID
	return w
}

// begin has a run that its row takes for running.
func (w *runWorld) begin(root uuid.UUID) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	_, err := w.pool.Exec(w.t.Context(), `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, root_id, host, boot_id, pid_namespace, state, slot)
		values ($1, $2, 1, 1, 'agent', $3, 'development', 1, 1, 'coder', $4, 'h', 'b', 'n', 'running', 2)`, id, w.task, id.String(), root)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// make makes a run's directory.
func (w *runWorld) make(id uuid.UUID) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, id.String())
	err := process.Create(dir, process.Spec{
		RunID: id.String(), Argv: []string{"tool", "--key", "sesame-open", "--token=hunter2hunter2", "not-for-it", "/usr/bin", "/var/lib/orch"},
		Dir: "/work", EnvNames: []string{"API_KEY", "HOME", "ORCH_ROOT", "PATH"}, Timeout: time.Hour,
	}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

func (w *runWorld) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func TestRunShowsWhatItWasMadeWith(t *testing.T) {
	t.Parallel()
	w := newRunWorld(t)
	id := w.begin(w.root)
	dir := w.make(id)
	run, err := w.runs.GetRun(t.Context(), id)
	if err != nil || run.Here == nil {
		t.Fatalf("%+v, %v", run, err)
	}
	here := *run.Here
	if want := []string{"tool", "--key", "[API_KEY]", "--token=[ORCH_API_TOKEN]", "not-for-it", "/usr/bin", "/var/lib/orch"}; !slices.Equal(here.Argv, want) {
		t.Errorf("started %q", here.Argv)
	}
	if !slices.Equal(here.EnvNames, []string{"API_KEY", "HOME", "ORCH_ROOT", "PATH"}) || here.WorkingDirectory != "/work" || here.Directory != dir {
		t.Errorf("in %+v", here)
	}
	if *here.TimeoutS != 3600 || here.StallTimeoutS != nil || here.KillGraceS != 10 || here.LogCapBytes != process.DefaultLogCap {
		t.Errorf("limits %+v", here)
	}
	if *here.FirstPort != 20020 || here.Ports != 10 || *run.Slot != 2 || run.RootID != w.root {
		t.Errorf("ports %+v, slot %d of %s", here, *run.Slot, run.RootID)
	}
	cfg := apitest.Config(&apitest.Backend{}, "")
	cfg.Runs = w.runs
	server, _ := apitest.Start(t, cfg)
	contract, err := apitest.LoadContract("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, contract, http.StatusOK, http.MethodGet, "http://"+server.Addr()+"/runs/"+id.String(), "")
	w.exec(`update runs set removed_at = clock_timestamp() where id = $1`, id)
	if run, err := w.runs.GetRun(t.Context(), id); err != nil || run.Here != nil || run.RemovedAt == nil {
		t.Errorf("removed: %+v, %v", run, err)
	}
}

// What only the machine of a run has isn't shown elsewhere, the rest is.
func TestRunDetailOfARunElsewhere(t *testing.T) {
	t.Parallel()
	w := newRunWorld(t)
	other := queuetest.Root(t, w.pool)
	id := w.begin(other)
	w.make(id)
	w.exec(`update runs set state = 'finished', ended = 'exited', finished_at = clock_timestamp(), user_ms = 5, max_rss_bytes = 7, detail = 'd' where id = $1`, id)
	run, err := w.runs.GetRun(t.Context(), id)
	if err != nil || run.Here != nil || run.RootID != other || *run.UserMs != 5 || *run.MaxRssBytes != 7 || run.Detail != "d" {
		t.Errorf("%+v, %v", run, err)
	}
	for name, of := range map[string]uuid.UUID{"not made yet": w.begin(w.root), "elsewhere": id} {
		if run, err := w.runs.GetRun(t.Context(), of); err != nil || run.Here != nil {
			t.Errorf("%s: %+v, %v", name, run.Here, err)
		}
	}
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	w := newRunWorld(t)
	var ids []uuid.UUID
	for n := range 4 {
		ids = append(ids, w.begin(w.root))
		w.exec(`update runs set created_at = now() - make_interval(secs => $1), job_id = $2, slot = null where id = $3`, 4-n/2, 1+n%2, ids[n])
	}
	list := func(filter httpapi.RunFilter) (found []uuid.UUID) {
		filter.Limit = 3
		runs, err := w.runs.ListRuns(t.Context(), "auto-1", filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range runs {
			found = append(found, run.ID)
		}
		return found
	}
	first := list(httpapi.RunFilter{})
	rest := list(httpapi.RunFilter{Before: first[2]})
	if all := append(slices.Clone(first), rest...); len(first) != 3 || len(rest) != 1 || len(slices.Compact(slices.Sorted(slices.Values(texts(all))))) != 4 {
		t.Errorf("pages %v and %v", first, rest)
	}
	if slices.Index(ids, first[0]) < 2 || slices.Index(ids, rest[0]) > 1 {
		t.Errorf("the newest is %v, the oldest %v of %v", first[0], rest[0], ids)
	}
	if of := list(httpapi.RunFilter{Job: 2}); !slices.Equal(of, []uuid.UUID{ids[3], ids[1]}) {
		t.Errorf("of one job %v", of)
	}
	if _, err := w.runs.ListRuns(t.Context(), "auto-9", httpapi.RunFilter{}); err == nil {
		t.Error("a task that isn't there has runs")
	}
}

func texts(ids []uuid.UUID) (texts []string) {
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return texts
}

// A log may be complete before it is noted how its run ended: a follower is told that, or nothing.
func TestFollowedLogEndsWithAKnownEnd(t *testing.T) {
	t.Parallel()
	w := newRunWorld(t)
	id := w.begin(w.root)
	if done, err := process.Forbid(w.make(id)); !done || err != nil {
		t.Fatal(done, err)
	}
	emit := func(httpapi.LogPart) error { return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the client leaves
	defer cancel()
	if end, err := w.runs.FollowLog(ctx, id, 0, emit); err == nil {
		t.Errorf("the end of a run that nobody knows: %+v", end)
	}
	ended := make(chan httpapi.RunEnd, 1)
	go func() {
		end, err := w.runs.FollowLog(t.Context(), id, 0, emit)
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	code := 3
	err := ledger.New(ledger.Config{Pool: w.pool, Root: w.root}).NoteEnd(t.Context(), id, ledger.End{
		Exit: process.Exit{Why: process.WhyExited, Code: &code}, Outcome: outcome.AgentFailed,
	})
	if err != nil {
		t.Fatal(err)
	}
	if end := <-ended; end.Ended != "exited" || *end.ExitCode != 3 || end.Outcome != "agent_failed" || end.FinishedAt == nil {
		t.Errorf("%+v", end)
	}
}
