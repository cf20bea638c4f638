package gather_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"orch/internal/queue/internal/gather"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachIsWrittenOnce(t *testing.T) {
	t.Parallel()
	const workers, each = 20, 200
	var running atomic.Int64
	var written []int
	g := gather.New(func() int { return int(running.Load()) }, func(_ context.Context, batch []int) {
		written = append(written, batch...)
	})
	running.Store(workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := range each {
				if !g.Add(t.Context(), w*each+n) {
					t.Error("refused")
				}
			}
			running.Add(-1)
			g.Look(t.Context())
		})
	}
	wg.Wait()
	g.Close(t.Context())
	if g.Add(t.Context(), -1) || g.Pending() > 0 {
		t.Error("taken by one that is closed")
	}
	slices.Sort(written)
	if len(written) != workers*each || len(slices.Compact(written)) != workers*each {
		t.Errorf("%d written", len(written))
	}
}

// Enough is pending for a second write: it waits for the first, and takes what came until then, up to a bound.
func TestOneWriteAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const enough, most = 500, 1000
		var sizes []int
		let := make(chan struct{})
		g := gather.New(func() int { return 1 }, func(_ context.Context, batch []int) {
			sizes = append(sizes, len(batch))
			<-let
		})
		g.BePatient()
		add := func(n int) {
			for range n {
				g.Add(t.Context(), n)
			}
			synctest.Wait()
		}
		for _, step := range []struct {
			add, writes int
		}{{enough - 1, 0}, {1, 1}, {most + 1, 1}} {
			add(step.add)
			if len(sizes) != step.writes {
				t.Fatalf("after %d more: %v", step.add, sizes)
			}
		}
		let <- struct{}{}
		synctest.Wait()
		if !slices.Equal(sizes, []int{enough, most}) {
			t.Fatal(sizes)
		}
		close(let)
		g.Close(t.Context())
		if !slices.Equal(sizes, []int{enough, most, 1}) {
			t.Fatal(sizes)
		}
	})
}

func TestWhatIsWithdrawnIsntWritten(t *testing.T) {
	t.Parallel()
	var written []string
	g := gather.New(func() int { return 1 }, func(_ context.Context, batch []string) { written = append(written, batch...) })
	g.BePatient()
	for _, what := range []string{"a", "b", "c"} {
		g.Add(t.Context(), what)
	}
	if !g.Withdraw("b") || g.Withdraw("b") || g.Pending() != 2 {
		t.Error("not withdrawn once")
	}
	g.Close(t.Context())
	if !slices.Equal(written, []string{"a", "c"}) {
		t.Error(written)
	}
	if g.Withdraw("a") {
		t.Error("withdrawn after it was written")
	}
}
