package app

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/merge"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

// What landed while its task was taken elsewhere is told; the task stays where it is.
func TestLandingOfATaskThatMovedOnIsTold(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	store, err := task.NewStore(pool, task.StoreConfig{Pipelines: task.Pipelines{flow.Short("default", "coder", "true")}})
	if err != nil {
		t.Fatal(err)
	}
	created, err := store.Create(t.Context(), task.Add{Repo: "app", Location: "/srv/app", Title: "T", Source: "cli", Pipeline: "default", BaseBranch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	change := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, created.ID); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	tasks := landingTasks{store, slog.New(slog.NewJSONHandler(&log, nil))}
	landed := func(commit string) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			at := merge.Task{ID: created.ID, Stage: created.Stage, Round: created.Round}
			ended, err := tasks.LandedTx(t.Context(), tx, nil, at, merge.Landed{Commit: commit, Target: "main"})
			if ended {
				t.Error("the merge job counts as ended")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(`update tasks set round = 2 where id = $1`)
	landed("abc")
	now, err := store.ByID(t.Context(), created.ID)
	if err != nil || now.State != task.Active || now.Round != 2 {
		t.Errorf("task is %+v, %v", now, err)
	}
	var reason string
	var data []byte
	err = pool.QueryRow(t.Context(), `select reason, data from task_events where task_id = $1 and kind = 'landed'`, created.ID).Scan(&reason, &data)
	if err != nil || !strings.Contains(reason, "moved on") {
		t.Errorf("event tells %q, %v", reason, err)
	}
	var facts struct {
		Commit string `json:"commit"`
		Round  int    `json:"round"`
	}
	if err := json.Unmarshal(data, &facts); err != nil || facts.Commit != "abc" || facts.Round != 1 {
		t.Errorf("event has %s, %v", data, err)
	}
	for _, want := range []string{`"level":"WARN"`, `"task":"` + created.Key, `"commit":"abc"`, `"round":2`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log doesn't tell %s: %s", want, log.String())
		}
	}

	log.Reset()
	change(`update tasks set state = 'done', finished_at = now(), landed_commit = 'abc' where id = $1`)
	landed("abc") // nothing new
	if log.Len() > 0 {
		t.Errorf("told again: %s", log.String())
	}
}
