package overview_test

import (
	"slices"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/overview"
)

func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var all []int64
	for n := range 5 {
		all = append(all, b.Enqueue(queue.Insert{TaskID: int64(n%2 + 1), RunAt: time.Now().Add(time.Duration(n) * time.Hour)}))
	}
	b.One(b.W)
	list := func(f overview.Filter) (got []int64) {
		jobs, err := b.reader.List(t.Context(), f)
		b.No(err)
		for _, job := range jobs {
			got = append(got, job.ID)
		}
		return got
	}
	for _, c := range []struct {
		f    overview.Filter
		want []int64
	}{
		{overview.Filter{}, []int64{all[4], all[3], all[2], all[1], all[0]}},
		{overview.Filter{Limit: 2}, []int64{all[4], all[3]}},
		{overview.Filter{Limit: 2, Before: all[3]}, []int64{all[2], all[1]}},
		{overview.Filter{State: queue.StateRunning}, []int64{all[0]}},
		{overview.Filter{TaskID: 2}, []int64{all[3], all[1]}},
		{overview.Filter{TaskID: 2, State: queue.StateRunning}, nil},
	} {
		if got := list(c.f); !slices.Equal(got, c.want) {
			t.Fatalf("%+v: %v, want %v", c.f, got, c.want)
		}
	}
}
