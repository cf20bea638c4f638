package queue_test

import (
	"errors"
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
	for _, p := range []queue.Pause{{Scope: queue.PauseRepo}, {Scope: "person", Name: "x"}, {Name: "x"}, {Scope: queue.PauseAgent, Name: "x", Code: "quota"}} {
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

// meets pauses the agent coder because of what a run met.
func (b *bench) meets(code string, until *time.Time) (holds bool) {
	b.t.Helper()
	b.no(pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		holds, err = queue.PauseTx(b.t.Context(), tx, queue.Pause{
			Scope: queue.PauseAgent, Name: "coder", Reason: "it said " + code, Actor: "orch", Code: code, Until: until,
		})
		return err
	}))
	return holds
}

func (b *bench) agentPause(name string) *queue.Pause {
	b.t.Helper()
	pauses, err := b.q.AgentPauses(b.t.Context(), []string{"other", name})
	b.no(err)
	if len(pauses) == 0 {
		return nil
	}
	return &pauses[0]
}

// now is the database's clock, which decides.
func (b *bench) now() (now time.Time) {
	b.t.Helper()
	b.no(b.pool.QueryRow(b.t.Context(), `select clock_timestamp()`).Scan(&now))
	return now
}

func TestPauseOfAnAgentEndsByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	job := b.enqueue(queue.Insert{})
	until := b.now().Add(time.Hour)
	equal(t, "paused", b.meets("quota", &until), true)
	equal(t, "of another agent", b.agentPause("tester") == nil, true)
	p := b.agentPause("coder")
	equal(t, "code", p.Code, "quota")
	equal(t, "until", p.Until.Equal(until), true)
	equal(t, "claimed", b.one(b.w).Job().ID, job) // it is not the claim that asks
	b.exec(`update pauses set until = clock_timestamp()`)
	equal(t, "in force when its time has come", b.agentPause("coder") == nil, true)
	pauses, err := b.q.Pauses(t.Context())
	b.no(err)
	equal(t, "listed then", len(pauses), 0)
	equal(t, "resumed then", b.resume(queue.PauseAgent, "coder"), false)
	over := b.now()
	equal(t, "paused again", b.meets("quota", &until), true)
	b.exec(`update pauses set until = clock_timestamp()`)
	equal(t, "paused until a time that has passed", b.meets("quota", &over), true)
	equal(t, "in force", b.agentPause("coder") == nil, true)
}

func TestPersonsPauseOutlivesAReset(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	until := b.now().Add(time.Hour)
	b.pause(queue.PauseAgent, "coder")
	equal(t, "met quota", b.meets("quota", &until), false)
	equal(t, "met auth", b.meets("auth", nil), false)
	p := b.agentPause("coder")
	equal(t, "whose", p.Actor+p.Code, "me")
	equal(t, "resumed", b.resume(queue.PauseAgent, "coder"), true)
	equal(t, "met quota", b.meets("quota", &until), true)
	b.pause(queue.PauseAgent, "coder") // a person wins over the system
	p = b.agentPause("coder")
	equal(t, "whose", p.Actor+p.Code, "me")
	equal(t, "ends by itself", p.Until != nil, false)
}

func TestLongerPauseOfTheSystemHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	soon, late := b.now().Add(time.Minute), b.now().Add(time.Hour)
	for _, step := range []struct {
		code  string
		until *time.Time
		holds bool
		then  string
	}{
		{"rate_limited", &soon, true, "rate_limited"},
		{"quota", &late, true, "quota"},
		{"rate_limited", &soon, false, "quota"},
		{"auth", nil, true, "auth"},
		{"quota", &late, false, "auth"},
		{"not_found", nil, false, "auth"},
	} {
		equal(t, step.code+" holds", b.meets(step.code, step.until), step.holds)
		equal(t, "after "+step.code, b.agentPause("coder").Code, step.then)
	}
	for _, p := range []queue.Pause{{Scope: queue.PauseRepo, Name: "a", Code: "quota"}, {Scope: queue.PauseAgent, Name: "a"}} {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := queue.PauseTx(t.Context(), tx, p)
			return err
		})
		if err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestPauseIsWrittenWithTheRunThatCausedIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	undone := errors.New("undone")
	b.is(b.tx(lease, func(tx pgx.Tx) error {
		_, err := queue.PauseTx(t.Context(), tx, queue.Pause{Scope: queue.PauseAgent, Name: "coder", Code: "auth"})
		b.no(err)
		return undone
	}), undone)
	equal(t, "paused", b.agentPause("coder") == nil, true)
}

// Who waits for another agent is woken, too: the one that goes on may be its fallback.
func TestResumeWakesWhoWaitsForAnAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var jobs []int64
	for _, waits := range []string{queue.WaitingForAgent("coder"), "gate_approval", queue.WaitingForAgent("tester")} {
		lease := b.running(queue.Insert{})
		jobs = append(jobs, lease.Job().ID)
		b.no(b.release(lease, queue.Release{After: time.Hour, WaitingFor: waits}))
	}
	b.pause(queue.PauseAgent, "coder")
	heard := b.listen(queue.ChannelJobs)
	equal(t, "claimed", len(b.claim(b.w, 10)), 0)
	equal(t, "resumed", b.resume(queue.PauseAgent, "coder"), true)
	equal(t, "woken", heard().Payload, "lane")
	leases := b.claim(b.w, 10)
	equal(t, "claimed then", ids(leases)[0] == jobs[0] && ids(leases)[1] == jobs[2] && len(leases) == 2, true)
}

// A job at work that finds its repository paused rests until it is resumed, and what its wait lasted doesn't count.
func TestJobRestsWhileItsRepositoryIsPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	id := b.enqueue(queue.Insert{Repo: "a"})
	fresh := b.enqueue(queue.Insert{Repo: "a"})
	b.exec(`update jobs set run_at = run_at + interval '1 hour' where id = $1`, fresh)
	leases, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "lane", Kinds: []string{"work"}, Repos: []string{"a"}, Limit: 1})
	b.no(err)
	for _, name := range []string{"a", "b"} {
		paused, err := b.q.RepoPaused(t.Context(), name)
		b.no(err)
		equal(t, "paused", paused, false)
	}
	b.pause(queue.PauseRepo, "a")
	paused, err := b.q.RepoPaused(t.Context(), "a")
	b.no(err)
	equal(t, "paused", paused, true)
	b.no(b.release(leases[0], queue.Release{WaitingFor: queue.WaitingForRepo("a")}))
	equal(t, "claimed", len(b.claimServing("a")), 0)
	b.exec(`update jobs set run_at = run_at - interval '1 day' where id = $1`, id)
	before := b.now()
	equal(t, "resumed", b.resume(queue.PauseRepo, "a"), true)
	equal(t, "due anew", b.get(id).RunAt.Before(before), false)
	equal(t, "what isn't due stays so", b.get(fresh).RunAt.After(before), true)
	got := b.claimServing("a")
	equal(t, "claimed then", len(got) == 1 && got[0] == id, true)
}
