package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

func (b *bench) pause(scope queue.PauseScope, name string) {
	b.t.Helper()
	b.no(b.q.Pause(b.t.Context(), queue.Pause{Scope: scope, Name: name, Reason: "broken", Actor: "me"}))
}

func (b *bench) resume(scope queue.PauseScope, name string) bool {
	b.t.Helper()
	resumed, err := b.q.Resume(b.t.Context(), scope, name)
	b.no(err)
	return resumed
}

func (b *bench) claimServing(repos ...string) []int64 {
	b.t.Helper()
	leases, err := b.q.Claim(b.t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "lane", Kinds: []string{"work"}, Repos: repos, Limit: 10})
	b.no(err)
	return ids(leases)
}

func TestPauseOfALaneHoldsBackNewWorkOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	queued := []int64{b.enqueue(queue.Insert{}), b.enqueue(queue.Insert{ConcurrencyKey: "k", PinnedRoot: b.w.RootID})}
	elsewhere := b.enqueue(queue.Insert{Lane: "other"})
	b.pause(queue.PauseLane, "lane")
	equal(t, "claimed of the paused lane", len(b.claim(b.w, 10)), 0)
	b.no(b.complete(lease)) // what runs goes on
	leases, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "other", Kinds: []string{"work"}, Limit: 10})
	b.no(err)
	equal(t, "claimed of another lane", len(leases) == 1 && leases[0].Job().ID == elsewhere, true)
	equal(t, "resumed", b.resume(queue.PauseLane, "lane"), true)
	equal(t, "claimed then", len(b.claim(b.w, 10)), len(queued))
}

func TestPauseOfARepositoryLeavesTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.enqueue(queue.Insert{Repo: "a"})
	b.enqueue(queue.Insert{Repo: "a", Priority: 9, PinnedRoot: b.w.RootID})
	other := b.enqueue(queue.Insert{Repo: "b"})
	none := b.enqueue(queue.Insert{})
	b.pause(queue.PauseRepo, "a")
	got := b.claimServing("a", "b")
	equal(t, "claimed", len(got) == 2 && got[0] == other && got[1] == none, true)
	equal(t, "resumed", b.resume(queue.PauseRepo, "a"), true)
	equal(t, "claimed then", len(b.claimServing("a", "b")), 2)
}

// Its run may be alive: it is followed to its end, before anything else, however much is paused or ahead of it.
func TestPauseLetsALivingRunBeFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{Repo: "", ConcurrencyKey: "k"})
	b.no(b.tx(lease, func(tx pgx.Tx) error { return lease.PinTx(t.Context(), tx, uuid.New()) }))
	b.no(b.release(lease, queue.Release{}))
	b.exec(insertJobs+`select 'work', 'lane', 'a', 3, 9, 'k' || n, $1, now() - interval '1 hour' from generate_series(1, 700) n`, b.w.RootID)
	b.exec(`update jobs set repo = 'a' where id = $1`, lease.Job().ID)
	first := b.claimServing()
	equal(t, "claimed first", first[0], lease.Job().ID)
	b.exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where state = 'running'`)
	b.pause(queue.PauseLane, "lane")
	b.pause(queue.PauseRepo, "a")
	got := b.claimServing()
	equal(t, "claimed while paused", len(got) == 1 && got[0] == lease.Job().ID, true)
}

func TestPauseAgainIsAnotherReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.pause(queue.PauseRepo, "a")
	b.pause(queue.PauseLane, "lane")
	b.no(b.q.Pause(t.Context(), queue.Pause{Scope: queue.PauseRepo, Name: "a", Reason: "still\x00 broken", Actor: "you"}))
	pauses, err := b.q.Pauses(t.Context())
	b.no(err)
	equal(t, "pauses", len(pauses), 2)
	for n := range pauses {
		within(t, "since", time.Since(pauses[n].At), -time.Minute, time.Hour)
		pauses[n].At = time.Time{}
	}
	equal(t, "first", pauses[0], queue.Pause{Scope: queue.PauseLane, Name: "lane", Reason: "broken", Actor: "me"})
	equal(t, "second", pauses[1], queue.Pause{Scope: queue.PauseRepo, Name: "a", Reason: "still\uFFFD broken", Actor: "you"})
	for _, p := range []queue.Pause{{Scope: queue.PauseRepo}, {Scope: "agent", Name: "x"}, {Name: "x"}} {
		if err := b.q.Pause(t.Context(), p); err == nil {
			t.Fatalf("%+v was taken", p)
		}
	}
}

func TestResumeWakesTheLanesThatWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for _, lane := range []string{"a", "b", "b"} {
		b.enqueue(queue.Insert{Lane: lane})
	}
	heard := b.listen(queue.ChannelJobs)
	equal(t, "of what isn't paused", b.resume(queue.PauseLane, "a"), false)
	b.pause(queue.PauseRepo, "x")
	equal(t, "resumed", b.resume(queue.PauseRepo, "x"), true)
	equal(t, "woken first", heard().Payload, "a")
	equal(t, "woken second", heard().Payload, "b")
	equal(t, "again", b.resume(queue.PauseRepo, "x"), false)
	b.enqueue(queue.Insert{Lane: "c"})
	equal(t, "next to be told", heard().Payload, "c") // so nothing was told in vain
}
