package remote

import (
	"strings"
	"testing"
	"time"

	"orch/api"
)

// A person sees what each landing waits for, and who holds the right to land.
func TestQueueShowsLandingsAndLeases(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	next := now.Add(90 * time.Second)
	got := queueText(api.Queue{
		GeneratedAt: now, Snapshot: api.QueueSnapshot{Status: "ok"},
		MergeQueue: []api.QueueMerge{
			{Repo: "app", Target: "main", Task: "app-1", Position: 1, Step: "testing", Base: new("8c2f1e0b7d7a4d0f"), Head: new("1f0e9d8c7b6a5f4e"), Land: new("5a4f3c2b1a098c2f"), Group: new("app-1"), NextLookAt: &now},
			{Repo: "app", Target: "main", Task: "app-2", Position: 2, Step: "queued", Attempt: 3, LastError: new("base_moved"), NextLookAt: &next},
		},
		Leases: []api.QueueLease{{
			Repo: "app", Target: "main", Task: new("app-1"), Host: new("build-1"), Pid: new(17), Holder: "alive", Epoch: 5, Step: new("testing"),
			AgeS: 12.25, ExpiresAt: now.Add(5 * time.Minute),
		}},
	})
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"app main app-1 1 testing 8c2f1e0b 1f0e9d8c 5a4f3c2b app-1 0 - now",
		"app main app-2 2 queued - - - - 3 base_moved in 1m30s",
		"app main app-1 build-1:17 alive 5 testing 12s in 5m0s",
	} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

// What keeps orch from looking after the work, or from telling anybody, is said first.
func TestQueueShowsWhatIsNotWell(t *testing.T) {
	t.Parallel()
	well := api.Queue{
		Snapshot:  api.QueueSnapshot{Status: "ok"},
		Reaper:    api.QueueReaper{Enabled: true, Status: "ok"},
		Reconcile: api.QueueReconcile{Enabled: true, Status: "ok"},
		Alerts:    api.QueueAlerts{Channel: "telegram", Status: "ok"},
	}
	if got := queueText(well); strings.Count(got, "\n") != 1 {
		t.Errorf("when all is well: %q", got)
	}
	ill := well
	ill.Snapshot = api.QueueSnapshot{Status: "stale", ErrorCode: new("database_timeout")}
	ill.Reaper.Status, ill.Reaper.LastError = "stale", new("database_timeout")
	ill.Reconcile.Enabled, ill.Reconcile.Status = false, "off"
	ill.Alerts = api.QueueAlerts{Channel: "telegram", Status: "failing", Pending: 3, LastError: new("telegram_refused")}
	for _, want := range []string{
		"the database doesn't answer (database_timeout): this is how it was",
		"the reaper is not well (stale): see the log and `orch doctor`",
		"the reconciler is switched off",
		"alerts don't get through (telegram, telegram_refused), 3 wait: see the log",
	} {
		if got := queueText(ill); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	held := well
	held.Reaper.LastError = new("mass_death")
	if got := queueText(held); !strings.Contains(got, "more runs seem dead at once") {
		t.Errorf("%q", got)
	}
	held.Reaper.LastError = new("panic") // and it came back
	if got := queueText(held); strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}
