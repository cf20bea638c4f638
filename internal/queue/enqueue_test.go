package queue_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestEnqueueKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	id := b.Enqueue(queue.Insert{
		Args: map[string]int{"n": 1}, Priority: 7, RunAt: at, MaxAttempts: 9, DedupeKey: queue.TaskKey(12), ConcurrencyKey: "c",
		TaskID: 12, PinnedRoot: b.W.RootID, Repo: "shop",
	})
	job := b.state(id, queue.StateQueued)
	queuetest.Equal(t, "args", string(job.Args), `{"n": 1}`)
	queuetest.Equal(t, "priority", job.Priority, 7)
	queuetest.Equal(t, "run_at", job.RunAt.Equal(at), true)
	queuetest.Equal(t, "max attempts", job.MaxAttempts, 9)
	queuetest.Equal(t, "dedupe key", *job.DedupeKey, "task:12")
	queuetest.Equal(t, "concurrency key", *job.ConcurrencyKey, "c")
	queuetest.Equal(t, "task", *job.TaskID, 12)
	queuetest.Equal(t, "repository", job.Repo, "shop")
	queuetest.Equal(t, "root", *job.PinnedRoot, b.W.RootID)

	plain := b.state(b.Enqueue(queue.Insert{}), queue.StateQueued)
	queuetest.Equal(t, "args", string(plain.Args), `{}`)
	queuetest.Equal(t, "max attempts", plain.MaxAttempts, 3)
	queuetest.Equal(t, "no repository", plain.Repo, "")
	queuetest.Equal(t, "no key", plain.DedupeKey == nil && plain.ConcurrencyKey == nil && plain.TaskID == nil && plain.PinnedRoot == nil, true)
}

func TestEnqueueRefusesWhatHasNoName(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for _, in := range []queue.Insert{{Kind: "work"}, {Lane: "lane"}, {Kind: "work", Lane: "lane", Args: func() {}}} {
		if _, err := b.Q.Enqueue(t.Context(), in); err == nil {
			t.Fatalf("%+v was queued", in)
		}
	}
}

func TestEnqueueNotifiesAtCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	heard := b.Listen(queue.ChannelJobs, queue.ChannelControl)
	b.Enqueue(queue.Insert{Lane: "here"})
	queuetest.Equal(t, "payload", heard().Payload, "here")

	lease := b.Running(queue.Insert{})
	heard()
	b.No(b.release(lease, queue.Release{}))
	queuetest.Equal(t, "payload of the release", heard().Payload, "lane")

	// One that is due later wakes nobody: the next notification is the cancel's.
	lease = b.One(b.W)
	b.No(b.release(lease, queue.Release{After: time.Hour}))
	b.Exec(`update jobs set run_at = now() where id = $1`, lease.Job().ID)
	_, err := b.Q.Cancel(t.Context(), b.One(b.W).Job().ID)
	b.No(err)
	n := heard()
	queuetest.Equal(t, "channel of the cancel", n.Channel, queue.ChannelControl)
	queuetest.Equal(t, "payload of the cancel", n.Payload, "beat")
}

func TestEnqueueReturnsTheLiveTwin(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	in := queue.Insert{Kind: "work", Lane: "lane", DedupeKey: "key"}
	first := b.Enqueue(in)
	twin, err := b.Q.Enqueue(t.Context(), in)
	b.No(err)
	queuetest.Equal(t, "twin of a queued job", twin, queue.Inserted{ID: first, Duplicate: true})
	lease := b.One(b.W)
	twin, err = b.Q.Enqueue(t.Context(), in)
	b.No(err)
	queuetest.Equal(t, "twin of a running job", twin, queue.Inserted{ID: first, Duplicate: true})

	// In the transaction that ends the job its key is free.
	var next queue.Inserted
	b.No(b.Tx(lease, func(tx pgx.Tx) (err error) {
		if err := lease.CompleteTx(t.Context(), tx); err != nil {
			return err
		}
		next, err = queue.EnqueueTx(t.Context(), tx, in)
		return err
	}))
	queuetest.Equal(t, "after the end", next.Duplicate, false)
	b.state(next.ID, queue.StateQueued)
}

func TestEnqueueOfManyTwinsAtOnceLeavesOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var wg sync.WaitGroup
	got := make(chan queue.Inserted, 50)
	for range cap(got) {
		wg.Go(func() {
			out, err := b.Q.Enqueue(t.Context(), queue.Insert{Kind: "work", Lane: "lane", DedupeKey: "key"})
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
		queuetest.Equal(t, "id", out.ID, first)
	}
	queuetest.Equal(t, "jobs queued", fresh, 1)
}

func TestEnqueueTxIsUndoneWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	broken := errors.New("broken")
	err := db.InTx(t.Context(), b.Pool, func(tx pgx.Tx) error {
		if _, err := queue.EnqueueTx(t.Context(), tx, queue.Insert{Kind: "work", Lane: "lane"}); err != nil {
			return err
		}
		return broken
	})
	b.Is(err, broken)
	queuetest.Equal(t, "claimed", len(b.Claim(b.W, 1)), 0)
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
			queuetest.Equal(t, raw, err, nil)
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
	b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	lease := b.One(b.W)
	b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	heard := b.Listen()
	b.No(b.complete(lease))
	queuetest.Equal(t, "lane", heard().Payload, "lane")
}
