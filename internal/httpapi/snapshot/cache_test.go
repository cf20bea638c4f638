package snapshot_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"orch/internal/httpapi/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter builds 1, 2, 3 …, each taking cost.
func counter(overlap bool, cost time.Duration) *snapshot.Cache[int64] {
	var n atomic.Int64
	return &snapshot.Cache[int64]{
		Fresh: time.Second, Timeout: 2 * time.Second, Overlap: overlap,
		Build: func(context.Context) (int64, error) {
			time.Sleep(cost) // of the bubble's clock
			return n.Add(1), nil
		},
	}
}

func expect(t *testing.T, c *snapshot.Cache[int64], want int64) {
	t.Helper()
	if got, err := c.Get(t.Context()); got != want || err != nil {
		t.Fatalf("got %d, %v; want %d", got, err, want)
	}
}

func TestBusyPollersNeverWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(true, 20*time.Millisecond)
		defer c.Close()
		expect(t, c, 1) // the first one has to wait
		for second := range int64(5) {
			started := time.Now()
			time.Sleep(1100 * time.Millisecond)
			began := time.Now()
			expect(t, c, second+1) // the old one, at once; it starts the next
			if waited := time.Since(began); waited != 0 {
				t.Fatalf("a poller waited %v", waited)
			}
			time.Sleep(30 * time.Millisecond)
			expect(t, c, second+2)
			_ = started
		}
	})
}

func TestAPollerThatComesSeldomGetsAFreshOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(true, 20*time.Millisecond)
		defer c.Close()
		for n := range int64(3) {
			expect(t, c, n+1)
			time.Sleep(time.Minute)
		}
	})
}

func TestSlowBuildsAreFewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(true, 200*time.Millisecond)
		defer c.Close()
		expect(t, c, 1)
		began := time.Now()
		for time.Since(began) < 40*time.Second {
			if _, err := c.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got, _ := c.Get(t.Context()); got > 12 { // one in four seconds
			t.Errorf("%d builds of 200 ms in 40 s are more than a twentieth", got)
		}
	})
}

func TestReadersWithoutOverlapWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(false, 20*time.Millisecond)
		defer c.Close()
		expect(t, c, 1)
		time.Sleep(900 * time.Millisecond)
		expect(t, c, 1)
		time.Sleep(200 * time.Millisecond)
		expect(t, c, 2)
	})
}

func TestAReaderThatLeavesDoesNotEndTheBuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(true, time.Second)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := c.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		expect(t, c, 1)
	})
}

func TestCloseEndsABuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &snapshot.Cache[int]{Fresh: time.Second, Timeout: time.Hour, Build: func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		failed := make(chan error, 1)
		go func() { _, err := c.Get(t.Context()); failed <- err }()
		synctest.Wait()
		c.Close()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Get(t.Context()); err == nil {
			t.Error("a closed cache answers")
		}
	})
}

func TestADroppedValueIsNotServedAgainNorOneThatWasBeingBuilt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(true, 20*time.Millisecond)
		defer c.Close()
		expect(t, c, 1)
		c.Drop()
		began := make(chan struct{})
		go func() {
			close(began)
			_, _ = c.Get(t.Context()) // begins to build 2
		}()
		<-began
		synctest.Wait()
		c.Drop()
		expect(t, c, 3)
		expect(t, c, 3)
	})
}
