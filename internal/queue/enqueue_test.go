package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/testdb"
)

// listen returns what waits for the next notification.
func (b *bench) listen(channels ...string) (next func() *pgconn.Notification) {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.t.Context(), testdb.ConnConfig(b.pool))
	b.no(err)
	b.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.t.Context())) })
	for _, channel := range channels {
		_, err = conn.Exec(b.t.Context(), "listen "+channel)
		b.no(err)
	}
	return func() *pgconn.Notification {
		b.t.Helper()
		ctx, cancel := context.WithTimeout(b.t.Context(), 4*time.Minute)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		b.no(err)
		return n
	}
}

func TestEnqueueKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	id := b.enqueue(queue.Insert{
		Args: map[string]int{"n": 1}, Priority: 7, RunAt: at, MaxAttempts: 9, DedupeKey: queue.TaskKey(12), ConcurrencyKey: "c",
		TaskID: 12, PinnedRoot: b.w.RootID, Repo: "shop",
	})
	job := b.state(id, queue.StateQueued)
	equal(t, "args", string(job.Args), `{"n": 1}`)
	equal(t, "priority", job.Priority, 7)
	equal(t, "run_at", job.RunAt.Equal(at), true)
	equal(t, "max attempts", job.MaxAttempts, 9)
	equal(t, "dedupe key", *job.DedupeKey, "task:12")
	equal(t, "concurrency key", *job.ConcurrencyKey, "c")
	equal(t, "task", *job.TaskID, 12)
	equal(t, "repository", job.Repo, "shop")
	equal(t, "root", *job.PinnedRoot, b.w.RootID)

	plain := b.state(b.enqueue(queue.Insert{}), queue.StateQueued)
	equal(t, "args", string(plain.Args), `{}`)
	equal(t, "max attempts", plain.MaxAttempts, 3)
	equal(t, "no repository", plain.Repo, "")
	equal(t, "no key", plain.DedupeKey == nil && plain.ConcurrencyKey == nil && plain.TaskID == nil && plain.PinnedRoot == nil, true)
}

func TestEnqueueRefusesWhatHasNoName(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for _, in := range []queue.Insert{{Kind: "work"}, {Lane: "lane"}, {Kind: "work", Lane: "lane", Args: func() {}}} {
		if _, err := b.q.Enqueue(t.Context(), in); err == nil {
			t.Fatalf("%+v was queued", in)
		}
	}
}

func TestEnqueueNotifiesAtCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	heard := b.listen(queue.ChannelJobs, queue.ChannelControl)
	b.enqueue(queue.Insert{Lane: "here"})
	equal(t, "payload", heard().Payload, "here")

	lease := b.running(queue.Insert{})
	heard()
	b.no(b.release(lease, queue.Release{}))
	equal(t, "payload of the release", heard().Payload, "lane")

	// One that is due later wakes nobody: the next notification is the cancel's.
	lease = b.one(b.w)
	b.no(b.release(lease, queue.Release{After: time.Hour}))
	b.exec(`update jobs set run_at = now() where id = $1`, lease.Job().ID)
	_, err := b.q.Cancel(t.Context(), b.one(b.w).Job().ID)
	b.no(err)
	n := heard()
	equal(t, "channel of the cancel", n.Channel, queue.ChannelControl)
	equal(t, "payload of the cancel", n.Payload, "beat")
}

func TestEnqueueReturnsTheLiveTwin(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	in := queue.Insert{Kind: "work", Lane: "lane", DedupeKey: "key"}
	first := b.enqueue(in)
	twin, err := b.q.Enqueue(t.Context(), in)
	b.no(err)
	equal(t, "twin of a queued job", twin, queue.Inserted{ID: first, Duplicate: true})
	lease := b.one(b.w)
	twin, err = b.q.Enqueue(t.Context(), in)
	b.no(err)
	equal(t, "twin of a running job", twin, queue.Inserted{ID: first, Duplicate: true})

	// In the transaction that ends the job its key is free.
	var next queue.Inserted
	b.no(b.tx(lease, func(tx pgx.Tx) (err error) {
		if err := lease.CompleteTx(t.Context(), tx); err != nil {
			return err
		}
		next, err = queue.EnqueueTx(t.Context(), tx, in)
		return err
	}))
	equal(t, "after the end", next.Duplicate, false)
	b.state(next.ID, queue.StateQueued)
}

func TestEnqueueOfManyTwinsAtOnceLeavesOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var wg sync.WaitGroup
	got := make(chan queue.Inserted, 50)
	for range cap(got) {
		wg.Go(func() {
			out, err := b.q.Enqueue(t.Context(), queue.Insert{Kind: "work", Lane: "lane", DedupeKey: "key"})
			if err != nil {
				t.Error(err)
			}
			got <- out
		})
	}
	wg.Wait()
	close(got)
	first, fresh := int64(0), 0
	for out := range got {
		if !out.Duplicate {
			fresh++
		}
		if first == 0 {
			first = out.ID
		}
		equal(t, "id", out.ID, first)
	}
	equal(t, "jobs queued", fresh, 1)
}

func TestEnqueueTxIsUndoneWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	broken := errors.New("broken")
	err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := queue.EnqueueTx(t.Context(), tx, queue.Insert{Kind: "work", Lane: "lane"}); err != nil {
			return err
		}
		return broken
	})
	b.is(err, broken)
	equal(t, "claimed", len(b.claim(b.w, 1)), 0)
}

func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	type args struct {
		N int `json:"n"`
	}
	for raw, ok := range map[string]bool{`{"n":1}`: true, `{}`: true, `{"m":1}`: false, `{"n":"x"}`: false, `{"n":1} {}`: false, `[]`: false} {
		var into args
		err := queue.Job{ID: 5, Args: json.RawMessage(raw)}.Decode(&into)
		if ok {
			equal(t, raw, err, nil)
			continue
		}
		failure, is := errors.AsType[*queue.Failure](err)
		if !is || !failure.Terminal || failure.Code != queue.CodeBadArgs || !strings.HasPrefix(err.Error(), "bad_args: decode args of job 5") {
			t.Fatalf("%s: %v", raw, err)
		}
	}
}

// A job that was announced while its key was busy is announced again by the end that frees the key.
func TestEndWakesWhatTheKeyHeldBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	lease := b.one(b.w)
	b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	heard := b.listen(queue.ChannelJobs)
	b.no(b.complete(lease))
	equal(t, "lane", heard().Payload, "lane")
}
