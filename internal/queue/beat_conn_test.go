package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestBeatBringsTheNewestSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	newest := b.Count(`select max(version)::int from schema_migrations`)
	queuetest.Equal(t, "applied", b.beat().Schema, newest)
	b.Exec(`update instance set migrating_to = $1, migrating_until = clock_timestamp() + interval '1 minute'`, newest+3)
	queuetest.Equal(t, "about to be applied", b.beat().Schema, newest+3)
	b.Exec(`update instance set migrating_until = clock_timestamp() - interval '1 second'`)
	queuetest.Equal(t, "given up", b.beat().Schema, newest)
	b.Exec(`update instance set migrating_to = 1, migrating_until = clock_timestamp() + interval '1 minute'`)
	queuetest.Equal(t, "applied by now", b.beat().Schema, newest)
	b.Exec(`insert into schema_migrations (version, name, sha256) select $1, 'later', sha256 from schema_migrations limit 1`, newest+1)
	queuetest.Equal(t, "by a newer program", b.beat().Schema, newest+1)
}

func TestBeatRenewsTheReposOfItsWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.W.Repos, b.W.Schema = []string{"a"}, 7
	b.No(b.Q.RegisterWorker(t.Context(), b.W))
	row := func() (repos []string, schema int) {
		b.No(b.Pool.QueryRow(t.Context(), `select repos, schema from workers where id = $1`, b.W.ID).Scan(&repos, &schema))
		return repos, schema
	}
	repos, schema := row()
	queuetest.Equal(t, "registered", slices.Equal(repos, b.W.Repos) && schema == 7, true)
	b.W.Repos = []string{"b", "a"}
	b.beat()
	repos, _ = row()
	queuetest.Equal(t, "renewed", slices.Equal(repos, b.W.Repos), true)
	b.W.Repos = nil
	b.beat()
	repos, _ = row()
	queuetest.Equal(t, "none", len(repos), 0)
}

// What a run says anew is proof of health: its workers' deaths don't add up any longer.
func TestNewOutputEndsACrashLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	silent, talking := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Exec(`update jobs set recoveries = 5`)
	talking.NoteOutput()
	b.beat(silent, talking)
	queuetest.Equal(t, "silent", b.Get(silent.Job().ID).Recoveries, 5)
	queuetest.Equal(t, "talking", b.Get(talking.Job().ID).Recoveries, 0)
	b.Exec(`update jobs set recoveries = 2`)
	b.beat(silent, talking)
	queuetest.Equal(t, "told once", b.Get(talking.Job().ID).Recoveries, 2)
	// A beat that doesn't come through has told nothing.
	unlock := b.lock(talking.Job().ID)
	talking.NoteOutput()
	b.beat(talking)
	unlock()
	queuetest.Equal(t, "not yet", b.Get(talking.Job().ID).Recoveries, 2)
	b.beat(talking)
	queuetest.Equal(t, "told by the next", b.Get(talking.Job().ID).Recoveries, 0)
}

// The server gives a beat up when the worker does, whether or not it can be told: what was given up renews nothing later.
func TestBeatHasAStatementTimeoutOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: 1234 * time.Millisecond})
	lease := b.Running(queue.Insert{})
	b.Exec(`create table seen (timeout text);
		create function note() returns trigger language plpgsql as
		$$ begin insert into seen values (current_setting('statement_timeout')); return new; end $$;
		create trigger note after update on workers for each row execute function note()`)
	b.beat(lease)
	queuetest.Equal(t, "timeout", b.Count(`select count(*) from seen where timeout = '1234ms'`), 1)
	tx, err := b.Pool.Begin(t.Context())
	b.No(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from workers where id = $1 for update`, b.W.ID)
	b.No(err)
	if _, err := b.Q.Beat(t.Context(), b.W, []*queue.Lease{lease}); err == nil {
		t.Fatal("a beat through a lock")
	}
	queuetest.Until(t, "no backend waits any more", func() bool {
		return b.Count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 0
	})
	queuetest.Equal(t, "lost", lease.Lost(), false)
	b.No(tx.Rollback(t.Context()))
	queuetest.Equal(t, "lost", len(b.beat(lease).Lost), 0)
}

// Handlers may hold every connection of the pool, and the beat's own may just have died: a new one is opened.
func TestBeatOpensANewConnectionBesideAnExhaustedPool(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	b.beat(lease)
	b.Exec(`select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and query like '%schema_migrations%' and pid <> pg_backend_pid()`)
	for range b.Pool.Config().MaxConns {
		conn, err := b.Pool.Acquire(t.Context())
		b.No(err)
		t.Cleanup(conn.Release)
	}
	queuetest.Until(t, "a beat comes through", func() bool {
		beat, err := b.Q.Beat(t.Context(), b.W, []*queue.Lease{lease})
		return err == nil && len(beat.Lost) == 0
	})
}
