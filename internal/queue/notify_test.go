package queue_test

import (
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
)

// While the server's notification queue is full nobody is woken, and everything is written all the same.
func TestFullNotificationQueueKeepsNothingFromBeingWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	heard := listen(t, b)
	usage := func(share string) {
		b.exec(`create or replace function public.pg_notification_queue_usage() returns float8 language sql as 'select ` + share + `::float8'`)
	}
	usage("0.9")
	b.exec(`do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$`)
	b.pool.Reset()
	many := func(lane string) {
		t.Helper()
		queued, err := bulk.EnqueueMany(t.Context(), b.pool, []queue.Insert{
			{Kind: "work", Lane: lane, ConcurrencyKey: "key"}, {Kind: "work", Lane: lane, ConcurrencyKey: "key"},
		})
		b.no(err)
		equal(t, "queued", queued, 2)
	}
	many("lane")
	b.no(b.release(b.one(b.w), queue.Release{}))
	b.no(newEnding(b, 0).Complete(t.Context(), b.one(b.w)))
	b.no(b.complete(b.one(b.w)))
	equal(t, "total", b.succeeded(), 2)
	usage("0.1")
	many("room again")
	equal(t, "the first that is heard", heard(), "room again")
}
