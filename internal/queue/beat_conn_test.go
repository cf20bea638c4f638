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
	newest := b.count(`select max(version)::int from schema_migrations`)
	equal(t, "applied", b.beat().Schema, newest)
	b.exec(`update instance set migrating_to = $1, migrating_until = clock_timestamp() + interval '1 minute'`, newest+3)
	equal(t, "about to be applied", b.beat().Schema, newest+3)
	b.exec(`update instance set migrating_until = clock_timestamp() - interval '1 second'`)
	equal(t, "given up", b.beat().Schema, newest)
	b.exec(`update instance set migrating_to = 1, migrating_until = clock_timestamp() + interval '1 minute'`)
	equal(t, "applied by now", b.beat().Schema, newest)
	b.exec(`insert into schema_migrations (version, name, sha256) select $1, 'later', sha256 from schema_migrations limit 1`, newest+1)
	equal(t, "by a newer program", b.beat().Schema, newest+1)
}

func TestBeatRenewsTheReposOfItsWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.w.Repos, b.w.Schema = []string{"a"}, 7
	b.no(b.q.RegisterWorker(t.Context(), b.w))
	row := func() (repos []string, schema int) {
		b.no(b.pool.QueryRow(t.Context(), `select repos, schema from workers where id = $1`, b.w.ID).Scan(&repos, &schema))
		return repos, schema
	}
	repos, schema := row()
	equal(t, "registered", slices.Equal(repos, b.w.Repos) && schema == 7, true)
	b.w.Repos = []string{"b", "a"}
	b.beat()
	repos, _ = row()
	equal(t, "renewed", slices.Equal(repos, b.w.Repos), true)
	b.w.Repos = nil
	b.beat()
	repos, _ = row()
	equal(t, "none", len(repos), 0)
}

// What a run says anew is proof of health: its workers' deaths don't add up any longer.
func TestNewOutputEndsACrashLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	silent, talking := b.running(queue.Insert{}), b.running(queue.Insert{})
	b.exec(`update jobs set recoveries = 5`)
	talking.NoteOutput()
	b.beat(silent, talking)
	equal(t, "silent", b.get(silent.Job().ID).Recoveries, 5)
	equal(t, "talking", b.get(talking.Job().ID).Recoveries, 0)
	b.exec(`update jobs set recoveries = 2`)
	b.beat(silent, talking)
	equal(t, "told once", b.get(talking.Job().ID).Recoveries, 2)
	// A beat that doesn't come through has told nothing.
	unlock := b.lock(talking.Job().ID)
	talking.NoteOutput()
	b.beat(talking)
	unlock()
	equal(t, "not yet", b.get(talking.Job().ID).Recoveries, 2)
	b.beat(talking)
	equal(t, "told by the next", b.get(talking.Job().ID).Recoveries, 0)
}

// The server gives a beat up when the worker does, whether or not it can be told: what was given up renews nothing later.
func TestBeatHasAStatementTimeoutOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: 1234 * time.Millisecond})
	lease := b.running(queue.Insert{})
	b.exec(`create table seen (timeout text);
		create function note() returns trigger language plpgsql as
		$$ begin insert into seen values (current_setting('statement_timeout')); return new; end $$;
		create trigger note after update on workers for each row execute function note()`)
	b.beat(lease)
	equal(t, "timeout", b.count(`select count(*) from seen where timeout = '1234ms'`), 1)
	tx, err := b.pool.Begin(t.Context())
	b.no(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from workers where id = $1 for update`, b.w.ID)
	b.no(err)
	if _, err := b.q.Beat(t.Context(), b.w, []*queue.Lease{lease}); err == nil {
		t.Fatal("a beat through a lock")
	}
	queuetest.Until(t, "no backend waits any more", func() bool {
		return b.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 0
	})
	equal(t, "lost", lease.Lost(), false)
	b.no(tx.Rollback(t.Context()))
	equal(t, "lost", len(b.beat(lease).Lost), 0)
}

// Handlers may hold every connection of the pool, and the beat's own may just have died: a new one is opened.
func TestBeatOpensANewConnectionBesideAnExhaustedPool(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	b.beat(lease)
	b.exec(`select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and query like '%schema_migrations%' and pid <> pg_backend_pid()`)
	for range b.pool.Config().MaxConns {
		conn, err := b.pool.Acquire(t.Context())
		b.no(err)
		t.Cleanup(conn.Release)
	}
	queuetest.Until(t, "a beat comes through", func() bool {
		beat, err := b.q.Beat(t.Context(), b.w, []*queue.Lease{lease})
		return err == nil && len(beat.Lost) == 0
	})
}
