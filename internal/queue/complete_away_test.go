package queue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/queue/queuetest"
)

// proxied makes jobs that run, and a Completer that reaches the database through a proxy.
func proxied(t *testing.T, jobs int) (*bench, *queuetest.Proxy, []*queue.Lease, *ending) {
	t.Helper()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: 5 * time.Second})
	leases := b.runningMany(jobs, queue.Insert{})
	b.beat(leases...)
	return b, proxy, leases, newEnding(b, 0)
}

// endedOnce completes the leases the way a worker does that wasn't answered, and checks that each ended once.
func (b *bench) endedOnce(leases ...*queue.Lease) {
	b.T.Helper()
	for _, l := range leases {
		if err := b.complete(l); err != nil {
			b.Is(err, queue.ErrEnded)
		}
		queuetest.Equal(b.T, "outcome", l.Outcome(), queue.OutcomeSucceeded)
		queuetest.Equal(b.T, "lost", l.Lost(), false)
		b.state(l.Job().ID, queue.StateSucceeded)
	}
	queuetest.Equal(b.T, "total", b.succeeded(), len(leases))
}

// The COMMIT of a batch went through and its answer didn't come: each lease finds out that its job has ended.
func TestUnansweredCommitOfABatchThatHappened(t *testing.T) {
	t.Parallel()
	b, proxy, leases, e := proxied(t, 5)
	proxy.Set(queuetest.CutAfter, commit)
	b.allNo(e.together(leases...))
	queuetest.Equal(t, "cut", proxy.Hits(), 1) // what finds out writes nothing
	b.endedOnce(leases...)
}

// It never reached the server: nothing has ended, and each end may be written anew.
func TestUnansweredCommitOfABatchThatDidNotHappen(t *testing.T) {
	t.Parallel()
	b, proxy, leases, e := proxied(t, 5)
	proxy.Set(queuetest.CutBefore, commit)
	for _, err := range e.together(leases...) {
		b.Is(err, queue.ErrUnavailable)
	}
	for _, l := range leases {
		queuetest.Equal(t, "ended or lost", l.Ended() || l.Lost(), false)
		b.state(l.Job().ID, queue.StateRunning)
	}
	proxy.Set(queuetest.Pass, "")
	b.allNo(e.together(leases[:3]...))
	b.endedOnce(leases...)
}

// With the database away the outcome stays open, a beat calls nothing lost, and what is written next finds it out.
func TestUnsureEndsOfABatchAreResolvedLater(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]queuetest.Mode{"happened": queuetest.DieAfter, "did not happen": queuetest.DieBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, proxy, leases, e := proxied(t, 4)
			proxy.Set(mode, commit)
			for _, err := range e.together(leases...) {
				b.Is(err, queue.ErrUnavailable)
			}
			proxy.Set(queuetest.Pass, "")
			queuetest.Until(t, "a beat comes through", func() bool {
				beat, err := b.Q.Beat(t.Context(), b.W, leases)
				queuetest.Equal(t, "lost or orphans", len(beat.Lost)+beat.Orphans, 0)
				return err == nil
			})
			for _, l := range leases {
				queuetest.Equal(t, "ended or lost", l.Ended() || l.Lost(), false)
			}
			b.allNo(e.together(leases[:2]...))
			b.endedOnce(leases...)
		})
	}
}

// The end was in doubt, it never happened, and somebody else has the job by now.
func TestUnsureEndOfABatchThatWasLost(t *testing.T) {
	t.Parallel()
	b, proxy, leases, e := proxied(t, 2)
	proxy.Set(queuetest.DieBefore, commit)
	for _, err := range e.together(leases...) {
		b.Is(err, queue.ErrUnavailable)
	}
	proxy.Set(queuetest.Pass, "")
	b.takeAway(leases[0])
	errs := e.together(leases...)
	b.Is(errs[0], queue.ErrLeaseLost)
	b.No(errs[1])
	b.state(leases[0].Job().ID, queue.StateQueued)
	queuetest.Equal(t, "total", b.succeeded(), 1)
}

func TestBatchWithoutADatabaseIsResentWhenItIsBack(t *testing.T) {
	t.Parallel()
	b, proxy, leases, e := proxied(t, 3)
	proxy.Set(queuetest.Refuse, "")
	for _, err := range e.together(leases...) {
		b.Is(err, queue.ErrUnavailable)
	}
	for _, l := range leases {
		queuetest.Equal(t, "ended or lost", l.Ended() || l.Lost(), false)
	}
	proxy.Set(queuetest.Pass, "")
	b.takeAway(leases[2])
	errs := e.together(leases...)
	b.No(errs[0])
	b.No(errs[1])
	b.Is(errs[2], queue.ErrLeaseLost) // if the epoch still holds
}

// The backend dies in the middle of the batch: definite, nothing was kept.
func TestTerminatedBackendOfABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(3, queue.Insert{})
	unlock := b.lock(leases[2].Job().ID)
	told := make(chan []error, 1)
	e := newEnding(b, 0)
	go func() { told <- e.together(leases...) }()
	b.Exec(`select pg_terminate_backend($1, 10000)`, b.untilWaiting())
	for _, err := range queuetest.Wait(t, "answers", told) {
		b.Is(err, queue.ErrUnavailable)
	}
	unlock()
	queuetest.Equal(t, "total", b.succeeded(), 0)
	b.allNo(e.together(leases...))
	b.endedOnce(leases...)
}

// And under load, again and again: every job ends once.
func TestTerminatedBackendsUnderLoad(t *testing.T) {
	t.Parallel()
	const rounds, each, kills = 5, 30, 40
	b := newBench(t, queue.Config{})
	e := newEnding(b, 0)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		admin, err := pgx.ConnectConfig(t.Context(), b.Pool.Config().ConnConfig)
		if err != nil {
			t.Error(err)
			return
		}
		defer admin.Close(t.Context())
		for n := 0; n < kills; {
			tag, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null order by random() limit 1`)
			if err != nil {
				t.Error(err)
				return
			}
			n += int(tag.RowsAffected())
			if _, err := admin.Exec(t.Context(), `select pg_sleep(0.01)`); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	insist := func(what string, do func() error) {
		t.Helper()
		queuetest.Until(t, what, func() bool { return do() == nil })
	}
	busy := func() bool {
		select {
		case <-killed:
			return false
		default:
			return true
		}
	}
	done := 0
	for ; done < rounds || busy(); done++ {
		ins := make([]queue.Insert, each)
		for n := range ins {
			ins[n] = queue.Insert{Kind: "work", Lane: "lane"}
		}
		insist("jobs are queued", func() error { _, err := bulk.EnqueueMany(t.Context(), b.Pool, ins); return err })
		for {
			var leases []*queue.Lease
			insist("jobs are claimed", func() (err error) {
				leases, err = b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Limit: each})
				return err
			})
			if len(leases) == 0 {
				break
			}
			for n, err := range e.together(leases...) {
				l := leases[n]
				if err == nil {
					continue
				}
				insist("the job ends", func() error {
					if err := b.complete(l); !l.Ended() {
						return err
					}
					return nil
				})
			}
			insist("a beat comes through", func() error { _, err := b.Q.Beat(t.Context(), b.W, nil); return err })
		}
	}
	rows := b.Count(`select count(*) from jobs`)
	queuetest.Equal(t, "all have ended", b.Count(`select count(*) from jobs where state = 'succeeded'`), rows)
	queuetest.Equal(t, "each once", b.succeeded(), rows)
	queuetest.Equal(t, "none is missing", rows >= done*each, true)
}
