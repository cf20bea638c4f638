package alerts_test

import (
	"testing"
	"time"

	"orch/internal/alert"
	"orch/internal/queue"
	"orch/internal/task"
)

func TestWaitInALineIsToldToNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	since := time.Now().Add(-30 * time.Hour)
	job := queue.Job{ID: 1, Kind: task.KindMerge, WaitingSince: &since}
	for _, what := range []string{"merge_lease", "repo_paused:demo"} {
		b.alerts.JobWaits(t.Context(), job, what, 30*time.Hour)
	}
	if told := b.told(); len(told) > 0 {
		t.Errorf("%+v", told)
	}
	b.alerts.JobWaits(t.Context(), job, "disk_space", 30*time.Hour)
	b.one(alert.JobWaits)
}
