package view_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/api"
	"orch/internal/app/view"
	"orch/internal/httpapi"
	"orch/internal/testdb"
)

const (
	landedBase   = "1111111111111111111111111111111111111111"
	landedCommit = "2222222222222222222222222222222222222222"
)

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// landed adds a task and what its landing by a method left, beside mates.
func landed(t *testing.T, pool *pgxpool.Pool, tasks view.Tasks, title, method string) api.Task {
	t.Helper()
	made, err := tasks.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: title, Source: "cli", Priority: 7})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `update jobs set state = 'cancelled', finished_at = now() where task_id = $1`, made.ID)
	exec(t, pool, `update tasks set state = 'done', finished_at = now(), landed_commit = $2 where id = $1`, made.ID, landedCommit)
	if method != "" {
		exec(t, pool, `insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, step, method, base_old, head_sha, land_sha, land_tree, tip_sha,
				tip_tree, group_id, finished_at)
			values ($1, 1, 1, 'auto', 'main', $2, 'finalised', $3, $4, $5, $5, $5, $5, $5, 99, now())`, made.ID, made.Branch, method, landedBase, landedCommit)
	}
	return made
}

func TestRevertTask_AddsATaskThatNamesWhatLanded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		mates  int
		want   string
	}{
		"commits":               {"fast-forward", 0, "`git revert " + landedBase + ".." + landedCommit + "`"},
		"commits beside others": {"rebase", 1, "where those of auto-1 are, too"},
		"a merge":               {"merge", 0, "`git revert -m 1 " + landedCommit + "`"},
		"one commit":            {"squash", 0, "`git revert " + landedCommit + "`"},
		"by a person":           {"", 0, "It landed as " + landedCommit + ". Find out which"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testdb.New(t)
			sources, _ := sourcesOn(t, pool)
			tasks := view.Tasks{Sources: sources}
			for range c.mates {
				landed(t, pool, tasks, "Beside it", c.method)
			}
			done := landed(t, pool, tasks, strings.Repeat("ö", 149), c.method)
			made, err := tasks.RevertTask(t.Context(), done.Key, "api")
			if err != nil {
				t.Fatal(err)
			}
			if made.Repo != "auto" || made.Priority != 7 || !made.Land || made.Source != "api" || made.State != api.TaskActive || made.Stage != "development" {
				t.Errorf("got %+v", made)
			}
			if !strings.HasPrefix(made.Title, "Revert "+done.Key+": ö") || len(made.Title) > 300 || strings.Contains(made.Title, "\uFFFD") {
				t.Errorf("title %q", made.Title)
			}
			if !strings.Contains(made.Body, c.want) || !strings.Contains(made.Body, done.Key) {
				t.Errorf("body %q", made.Body)
			}
		})
	}
}

func TestRevertTask_RefusesWhatHasNotLanded(t *testing.T) {
	t.Parallel()
	sources, _ := newSources(t)
	tasks := view.Tasks{Sources: sources}
	open, err := tasks.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: "x", Source: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{open.Key: "task_not_landed", "auto-99": "not_found"} {
		_, err := tasks.RevertTask(t.Context(), key, "cli")
		if refused, ok := errors.AsType[*httpapi.RefusedError](err); !ok || refused.Code != want {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// The line of a target shows what each landing was prepared on, what lands and with whom.
func TestQueue_CommitsOfLandings(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	snapshot := snapshotOn(t, pool)
	tasks := view.Tasks{Sources: snapshot.Sources}
	for _, title := range []string{"first", "second"} {
		made, err := tasks.CreateTask(t.Context(), httpapi.NewTask{Repo: "auto", Title: title, Source: "cli"})
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, `insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, method)
			select task_id, id, 1, 'auto', 'main', $2, 'squash' from jobs where task_id = $1`, made.ID, made.Branch)
	}
	exec(t, pool, `update merge_attempts set base_old = $1, head_sha = $2, land_sha = $2, group_id = (select min(id) from merge_attempts)
		where id = (select min(id) from merge_attempts)`, landedBase, landedCommit)
	q, err := snapshot.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(q.MergeQueue) != 2 {
		t.Fatalf("line %+v", q.MergeQueue)
	}
	first, second := q.MergeQueue[0], q.MergeQueue[1]
	if *first.Base != landedBase || *first.Head != landedCommit || *first.Land != landedCommit || *first.Group != first.Task || first.Method != "squash" || first.Branch != "orch/"+first.Task {
		t.Errorf("first %+v", first)
	}
	if second.Base != nil || second.Head != nil || second.Land != nil || second.Group != nil {
		t.Errorf("second %+v", second)
	}
}
