package queue_test

import (
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/queue/queuetest"
)

// While the server's notification queue is full nobody is woken, and everything is written all the same.
func TestFullNotificationQueueKeepsNothingFromBeingWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	heard := b.Listen()
	usage := func(share string) {
		b.Exec(`create or replace function public.pg_notification_queue_usage() returns float8 language sql as 'select ` + share + `::float8'`)
	}
	usage("0.9")
	b.Exec(`do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$`)
	b.Pool.Reset()
	many := func(lane string) {
		t.Helper()
		queued, err := bulk.EnqueueMany(t.Context(), b.Pool, []queue.Insert{
			{Kind: "work", Lane: lane, ConcurrencyKey: "key"}, {Kind: "work", Lane: lane, ConcurrencyKey: "key"},
		})
		b.No(err)
		queuetest.Equal(t, "queued", queued, 2)
	}
	many("lane")
	b.No(b.release(b.One(b.W), queue.Release{}))
	b.No(newEnding(b, 0).Complete(t.Context(), b.One(b.W)))
	b.No(b.complete(b.One(b.W)))
	queuetest.Equal(t, "total", b.succeeded(), 2)
	usage("0.1")
	many("room again")
	queuetest.Equal(t, "the first that is heard", heard().Payload, "room again")
}
