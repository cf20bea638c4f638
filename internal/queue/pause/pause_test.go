package pause_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*queuetest.Bench
	pauses *pause.Store
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := queuetest.NewBench(t, testdb.New(t))
	return &bench{Bench: b, pauses: pause.NewStore(b.Pool)}
}

func (b *bench) pause(scope pause.Scope, name string) {
	b.T.Helper()
	b.No(b.pauses.Pause(b.T.Context(), pause.Pause{Scope: scope, Name: name, Reason: "broken", Actor: "me"}))
}

func (b *bench) resume(scope pause.Scope, name string) bool {
	b.T.Helper()
	resumed, err := b.pauses.Resume(b.T.Context(), scope, name)
	b.No(err)
	return resumed
}

func (b *bench) claimServing(repos ...string) []int64 {
	b.T.Helper()
	return queuetest.IDs(b.Claim(b.W, 10, repos...))
}

func TestPauseOfALaneHoldsBackNewWorkOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lease := b.Running(queue.Insert{})
	queued := []int64{b.Enqueue(queue.Insert{}), b.Enqueue(queue.Insert{ConcurrencyKey: "k", PinnedRoot: b.W.RootID})}
	elsewhere := b.Enqueue(queue.Insert{Lane: "other"})
	b.pause(pause.Lane, "lane")
	queuetest.Equal(t, "claimed of the paused lane", len(b.Claim(b.W, 10)), 0)
	b.Complete(lease) // what runs goes on
	leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "other", Kinds: []string{"work"}, Limit: 10})
	b.No(err)
	queuetest.Equal(t, "claimed of another lane", len(leases) == 1 && leases[0].Job().ID == elsewhere, true)
	queuetest.Equal(t, "resumed", b.resume(pause.Lane, "lane"), true)
	queuetest.Equal(t, "claimed then", len(b.Claim(b.W, 10)), len(queued))
}

func TestPauseOfARepositoryLeavesTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Enqueue(queue.Insert{Repo: "a"})
	b.Enqueue(queue.Insert{Repo: "a", Priority: 9, PinnedRoot: b.W.RootID})
	other := b.Enqueue(queue.Insert{Repo: "b"})
	none := b.Enqueue(queue.Insert{})
	b.pause(pause.Repo, "a")
	got := b.claimServing("a", "b")
	queuetest.Equal(t, "claimed", len(got) == 2 && got[0] == other && got[1] == none, true)
	queuetest.Equal(t, "resumed", b.resume(pause.Repo, "a"), true)
	queuetest.Equal(t, "claimed then", len(b.claimServing("a", "b")), 2)
}

// Its run may be alive: it is followed to its end, before anything else, however much is paused or ahead of it.
func TestPauseLetsALivingRunBeFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lease := b.Running(queue.Insert{Repo: "", ConcurrencyKey: "k"})
	b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.PinTx(t.Context(), tx, uuid.New()) }))
	b.Release(lease, queue.Release{})
	b.Exec(`insert into jobs (kind, lane, repo, max_attempts, priority, concurrency_key, pinned_root, run_at) `+`select 'work', 'lane', 'a', 3, 9, 'k' || n, $1, now() - interval '1 hour' from generate_series(1, 700) n`, b.W.RootID)
	b.Exec(`update jobs set repo = 'a' where id = $1`, lease.Job().ID)
	first := b.claimServing()
	queuetest.Equal(t, "claimed first", first[0], lease.Job().ID)
	b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where state = 'running'`)
	b.pause(pause.Lane, "lane")
	b.pause(pause.Repo, "a")
	got := b.claimServing()
	queuetest.Equal(t, "claimed while paused", len(got) == 1 && got[0] == lease.Job().ID, true)
}

func TestPauseAgainIsAnotherReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pause(pause.Repo, "a")
	b.pause(pause.Lane, "lane")
	b.No(b.pauses.Pause(t.Context(), pause.Pause{Scope: pause.Repo, Name: "a", Reason: "still\x00 broken", Actor: "you"}))
	pauses, err := b.pauses.Pauses(t.Context())
	b.No(err)
	queuetest.Equal(t, "pauses", len(pauses), 2)
	for n := range pauses {
		queuetest.Within(t, "since", time.Since(pauses[n].At), -time.Minute, time.Hour)
		pauses[n].At = time.Time{}
	}
	queuetest.Equal(t, "first", pauses[0], pause.Pause{Scope: pause.Lane, Name: "lane", Reason: "broken", Actor: "me"})
	queuetest.Equal(t, "second", pauses[1], pause.Pause{Scope: pause.Repo, Name: "a", Reason: "still\uFFFD broken", Actor: "you"})
	for _, p := range []pause.Pause{{Scope: pause.Repo}, {Scope: "person", Name: "x"}, {Name: "x"}, {Scope: pause.Agent, Name: "x", Code: "quota"}} {
		if err := b.pauses.Pause(t.Context(), p); err == nil {
			t.Fatalf("%+v was taken", p)
		}
	}
}

func TestResumeWakesTheLanesThatWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, lane := range []string{"a", "b", "b"} {
		b.Enqueue(queue.Insert{Lane: lane})
	}
	heard := b.Listen()
	queuetest.Equal(t, "of what isn't paused", b.resume(pause.Lane, "a"), false)
	b.pause(pause.Repo, "x")
	queuetest.Equal(t, "resumed", b.resume(pause.Repo, "x"), true)
	queuetest.Equal(t, "woken first", heard().Payload, "a")
	queuetest.Equal(t, "woken second", heard().Payload, "b")
	queuetest.Equal(t, "again", b.resume(pause.Repo, "x"), false)
	b.Enqueue(queue.Insert{Lane: "c"})
	queuetest.Equal(t, "next to be told", heard().Payload, "c") // so nothing was told in vain
}

// meets pauses the agent coder because of what a run met.
func (b *bench) meets(code string, until *time.Time) (holds bool) {
	b.T.Helper()
	b.No(pgx.BeginFunc(b.T.Context(), b.Pool, func(tx pgx.Tx) (err error) {
		holds, err = pause.AgentTx(b.T.Context(), tx, pause.Pause{
			Scope: pause.Agent, Name: "coder", Reason: "it said " + code, Actor: "orch", Code: code, Until: until,
		})
		return err
	}))
	return holds
}

func (b *bench) agentPause(name string) *pause.Pause {
	b.T.Helper()
	pauses, err := b.pauses.AgentPauses(b.T.Context(), []string{"other", name})
	b.No(err)
	if len(pauses) == 0 {
		return nil
	}
	return &pauses[0]
}

// now is the database's clock, which decides.
func (b *bench) now() (now time.Time) {
	b.T.Helper()
	b.No(b.Pool.QueryRow(b.T.Context(), `select clock_timestamp()`).Scan(&now))
	return now
}

func TestPauseOfAnAgentEndsByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.Enqueue(queue.Insert{})
	until := b.now().Add(time.Hour)
	queuetest.Equal(t, "paused", b.meets("quota", &until), true)
	queuetest.Equal(t, "of another agent", b.agentPause("tester") == nil, true)
	p := b.agentPause("coder")
	queuetest.Equal(t, "code", p.Code, "quota")
	queuetest.Equal(t, "until", p.Until.Equal(until), true)
	queuetest.Equal(t, "claimed", b.One(b.W).Job().ID, job) // it is not the claim that asks
	b.Exec(`update pauses set until = clock_timestamp()`)
	queuetest.Equal(t, "in force when its time has come", b.agentPause("coder") == nil, true)
	pauses, err := b.pauses.Pauses(t.Context())
	b.No(err)
	queuetest.Equal(t, "listed then", len(pauses), 0)
	queuetest.Equal(t, "resumed then", b.resume(pause.Agent, "coder"), false)
	over := b.now()
	queuetest.Equal(t, "paused again", b.meets("quota", &until), true)
	b.Exec(`update pauses set until = clock_timestamp()`)
	queuetest.Equal(t, "paused until a time that has passed", b.meets("quota", &over), true)
	queuetest.Equal(t, "in force", b.agentPause("coder") == nil, true)
}

func TestPersonsPauseOutlivesAReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	until := b.now().Add(time.Hour)
	b.pause(pause.Agent, "coder")
	queuetest.Equal(t, "met quota", b.meets("quota", &until), false)
	queuetest.Equal(t, "met auth", b.meets("auth", nil), false)
	p := b.agentPause("coder")
	queuetest.Equal(t, "whose", p.Actor+p.Code, "me")
	queuetest.Equal(t, "resumed", b.resume(pause.Agent, "coder"), true)
	queuetest.Equal(t, "met quota", b.meets("quota", &until), true)
	b.pause(pause.Agent, "coder") // a person wins over the system
	p = b.agentPause("coder")
	queuetest.Equal(t, "whose", p.Actor+p.Code, "me")
	queuetest.Equal(t, "ends by itself", p.Until != nil, false)
}

func TestLongerPauseOfTheSystemHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
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
		queuetest.Equal(t, step.code+" holds", b.meets(step.code, step.until), step.holds)
		queuetest.Equal(t, "after "+step.code, b.agentPause("coder").Code, step.then)
	}
	for _, p := range []pause.Pause{{Scope: pause.Repo, Name: "a", Code: "quota"}, {Scope: pause.Agent, Name: "a"}} {
		err := pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
			_, err := pause.AgentTx(t.Context(), tx, p)
			return err
		})
		if err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestPauseIsWrittenWithTheRunThatCausedIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lease := b.Running(queue.Insert{})
	undone := errors.New("undone")
	b.Is(b.Tx(lease, func(tx pgx.Tx) error {
		_, err := pause.AgentTx(t.Context(), tx, pause.Pause{Scope: pause.Agent, Name: "coder", Code: "auth"})
		b.No(err)
		return undone
	}), undone)
	queuetest.Equal(t, "paused", b.agentPause("coder") == nil, true)
}

// Who waits for another agent is woken, too: the one that goes on may be its fallback.
func TestResumeWakesWhoWaitsForAnAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var jobs []int64
	for _, waits := range []string{pause.WaitingForAgent("coder"), "gate_approval", pause.WaitingForAgent("tester")} {
		lease := b.Running(queue.Insert{})
		jobs = append(jobs, lease.Job().ID)
		b.Release(lease, queue.Release{After: time.Hour, WaitingFor: waits})
	}
	b.pause(pause.Agent, "coder")
	heard := b.Listen()
	queuetest.Equal(t, "claimed", len(b.Claim(b.W, 10)), 0)
	queuetest.Equal(t, "resumed", b.resume(pause.Agent, "coder"), true)
	queuetest.Equal(t, "woken", heard().Payload, "lane")
	leases := b.Claim(b.W, 10)
	queuetest.Equal(t, "claimed then", queuetest.IDs(leases)[0] == jobs[0] && queuetest.IDs(leases)[1] == jobs[2] && len(leases) == 2, true)
}

// A job at work that finds its repository paused rests until it is resumed, and what its wait lasted doesn't count.
func TestJobRestsWhileItsRepositoryIsPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.Enqueue(queue.Insert{Repo: "a"})
	fresh := b.Enqueue(queue.Insert{Repo: "a"})
	b.Exec(`update jobs set run_at = run_at + interval '1 hour' where id = $1`, fresh)
	leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Repos: []string{"a"}, Limit: 1})
	b.No(err)
	for _, name := range []string{"a", "b"} {
		paused, err := b.pauses.RepoPaused(t.Context(), name)
		b.No(err)
		queuetest.Equal(t, "paused", paused, false)
	}
	b.pause(pause.Repo, "a")
	paused, err := b.pauses.RepoPaused(t.Context(), "a")
	b.No(err)
	queuetest.Equal(t, "paused", paused, true)
	b.Release(leases[0], queue.Release{WaitingFor: pause.WaitingForRepo("a")})
	queuetest.Equal(t, "claimed", len(b.claimServing("a")), 0)
	b.Exec(`update jobs set run_at = run_at - interval '1 day' where id = $1`, id)
	before := b.now()
	queuetest.Equal(t, "resumed", b.resume(pause.Repo, "a"), true)
	queuetest.Equal(t, "due anew", b.Get(id).RunAt.Before(before), false)
	queuetest.Equal(t, "what isn't due stays so", b.Get(fresh).RunAt.After(before), true)
	got := b.claimServing("a")
	queuetest.Equal(t, "claimed then", len(got) == 1 && got[0] == id, true)
}
