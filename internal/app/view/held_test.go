package view_test

import (
	"testing"

	"orch/api"
	"orch/internal/app/view"
	"orch/internal/forge"
	"orch/internal/httpapi"
	"orch/internal/merge/problem"
	"orch/internal/task"
	"orch/internal/testdb"
)

// What keeps a task is said in a list as in a look at one, and a task that needs a person is counted as such.
func TestTaskThatIsHeldSaysByWhat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, phase, told string
		needsYou          bool
		reason            string
	}{
		"nothing":                {kind: task.KindMerge},
		"a dirty checkout":       {kind: task.KindMerge, phase: string(forge.CodeDirty), needsYou: true, reason: "a checkout of the target branch has changes that nobody committed: commit them, or put them away"},
		"no branch":              {kind: task.KindMerge, phase: problem.NoBranch, needsYou: true, reason: "its branch isn't there"},
		"told by the landing":    {kind: task.KindMerge, phase: string(forge.CodeDirty), told: string(forge.CodeDirty), needsYou: true, reason: "/srv/e has changes"},
		"told of an earlier try": {kind: task.KindMerge, phase: problem.NoBranch, told: string(forge.CodeDirty), needsYou: true, reason: "its branch isn't there"},
		"its turn":               {kind: task.KindMerge, phase: "merge_lease"},
		"a lock":                 {kind: task.KindMerge, phase: string(forge.CodeLocked)},
		"an agent":               {kind: task.KindStage, phase: "agent_paused:coder"},
		"what isn't landing's":   {kind: task.KindStage, phase: string(forge.CodeDirty)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testdb.New(t)
			snapshot := snapshotOn(t, pool)
			tasks := view.Tasks{Sources: snapshot.Sources}
			before, err := snapshot.Queue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held := taskWithJob(t, snapshot.Sources, "held")
			_, err = pool.Exec(t.Context(), `update jobs set kind = $2, phase = nullif($3, ''), error_code = nullif($4, ''), error = case when $4 <> '' then '/srv/e has changes' end
				where task_id = $1`, held.ID, c.kind, c.phase, c.told)
			if err == nil && c.kind == task.KindMerge {
				_, err = pool.Exec(t.Context(), `insert into merge_attempts (repo, target, task_id, job_id, job_epoch, branch, method)
					select 'auto', 'main', task_id, id, 0, 'b', 'rebase' from jobs where task_id = $1`, held.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			list, err := tasks.ListTasks(t.Context(), httpapi.TaskFilter{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			one, err := tasks.GetTask(t.Context(), held.Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, shown := range []api.Task{list[0], one.Task} {
				if shown.Key != held.Key || shown.State != api.TaskActive || orEmpty(shown.WaitingFor) != c.phase || shown.NeedsYou != c.needsYou || orEmpty(shown.Reason) != c.reason {
					t.Errorf("%+v", shown)
				}
			}
			q, err := snapshot.Queue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			active, needsYou := before.Tasks.Active+1, before.Tasks.NeedsYou
			if c.needsYou {
				active, needsYou = active-1, needsYou+1
			}
			if q.Tasks.Active != active || q.Tasks.NeedsYou != needsYou || c.kind == task.KindMerge && q.MergeQueue[0].NeedsYou != c.needsYou {
				t.Errorf("%+v, %+v", q.Tasks, q.MergeQueue)
			}
		})
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
