package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// What both contenders are given: River's own settings for its benchmark.
const (
	slots     = 2_000
	poll      = 20 * time.Millisecond
	batch     = 5_000 // jobs of one bulk insert
	pickups   = 2_000
	pickRate  = 400 // single inserts a second while pick-up is measured
	longRound = 5 * time.Minute
)

// contender is a queue in an empty database.
type contender interface {
	// insert queues n jobs in bulk.
	insert(ctx context.Context, n int) error
	// insertOne queues one job that carries n.
	insertOne(ctx context.Context, n int) error
	// work starts a worker whose handler calls started, and returns what stops it.
	work(ctx context.Context, started func(n int)) (stop func() error, err error)
	// completed is how many jobs the database knows as completed.
	completed(ctx context.Context) (int, error)
	close()
}

// figures are what one round of one contender gave.
type figures struct {
	insert, worked float64 // jobs a second
	p50, p99       time.Duration
}

func compare(ctx context.Context, s *server, jobs, rounds int) error {
	makers := []struct {
		name string
		make func(context.Context, *server) (contender, error)
	}{{"river", newRiver}, {"orch", newOrch}}
	all := map[string][]figures{}
	for round := range rounds {
		for _, m := range makers { // in turns, so that what the machine does meanwhile meets both
			c, err := m.make(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			f, err := measure(ctx, c, jobs)
			c.close()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			all[m.name] = append(all[m.name], f)
			fmt.Printf("round %d %-5s  insert %7.0f/s  worked %6.0f/s  pick-up p50 %5.2f ms p99 %5.2f ms\n",
				round+1, m.name, f.insert, f.worked, ms(f.p50), ms(f.p99))
		}
	}
	river, orch := medians(all["river"]), medians(all["orch"])
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "\nmedians of %d\tinsert/s\tworked/s\tpick-up p50 ms\tpick-up p99 ms\n", rounds)
	for name, f := range map[string]figures{"river": river, "orch": orch} {
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%.2f\n", name, f.insert, f.worked, ms(f.p50), ms(f.p99))
	}
	_, _ = fmt.Fprintf(w, "orch / river\t%.2f\t%.2f\t%.2f\t%.2f\n\n", orch.insert/river.insert, orch.worked/river.worked,
		float64(orch.p50)/float64(river.p50), float64(orch.p99)/float64(river.p99))
	return w.Flush()
}

// measure is one round: insert all, work all until the database says so, then single jobs at a steady rate.
func measure(ctx context.Context, c contender, jobs int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, longRound)
	defer cancel()
	begin := time.Now()
	if err := c.insert(ctx, jobs); err != nil {
		return figures{}, err
	}
	f := figures{insert: rate(jobs, time.Since(begin))}

	var ran atomic.Int64
	all := make(chan struct{})
	begin = time.Now()
	stop, err := c.work(ctx, func(int) {
		if ran.Add(1) == int64(jobs) {
			close(all)
		}
	})
	if err != nil {
		return figures{}, err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return figures{}, context.Cause(ctx)
	}
	for done := 0; done < jobs; {
		if done, err = c.completed(ctx); err != nil {
			return figures{}, err
		}
	}
	f.worked = rate(jobs, time.Since(begin))
	if err := stop(); err != nil {
		return figures{}, err
	}
	f.p50, f.p99, err = pickup(ctx, c)
	return f, err
}

// pickup measures from before the insert is called until the handler runs.
func pickup(ctx context.Context, c contender) (p50, p99 time.Duration, err error) {
	sent := make([]time.Time, pickups)
	took := make([]time.Duration, pickups)
	var mu sync.Mutex // of sent: the handler may be faster than the insert's answer
	var left sync.WaitGroup
	left.Add(pickups)
	stop, err := c.work(ctx, func(n int) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		took[n] = now.Sub(sent[n])
		left.Done()
	})
	if err != nil {
		return 0, 0, err
	}
	ticker := time.NewTicker(time.Second / pickRate)
	defer ticker.Stop()
	for n := range pickups {
		<-ticker.C
		mu.Lock()
		sent[n] = time.Now()
		mu.Unlock()
		if err := c.insertOne(ctx, n); err != nil {
			return 0, 0, err
		}
	}
	left.Wait()
	return percentile(took, 50), percentile(took, 99), stop()
}

func rate(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// medians takes each figure's own median.
func medians(all []figures) figures {
	return figures{
		insert: median(all, func(f figures) float64 { return f.insert }),
		worked: median(all, func(f figures) float64 { return f.worked }),
		p50:    time.Duration(median(all, func(f figures) float64 { return float64(f.p50) })),
		p99:    time.Duration(median(all, func(f figures) float64 { return float64(f.p99) })),
	}
}

func median(all []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
