package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	heldRate   = 5_000 // jobs a second
	heldBatch  = 50
	heldWindow = 10 * time.Second
)

// held works at a steady rate while a reader holds its snapshot, so that no vacuum takes dead rows away. What grows is
// how long a job waits for its pick-up.
func held(ctx context.Context, s *server, hold time.Duration) error {
	fmt.Printf("\n%d jobs a second for %s, a snapshot held all along\n\n", heldRate, hold)
	q, err := openOrch(ctx, s, "held")
	if err != nil {
		return err
	}
	defer q.close()
	reader, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = reader.Rollback(ctx) }()
	var n int
	if err := reader.QueryRow(ctx, `select count(*) from jobs`).Scan(&n); err != nil { // takes the snapshot
		return err
	}
	p := &pace{begin: time.Now()}
	stop, err := q.work(ctx, p.started)
	if err != nil {
		return err
	}
	err = p.run(ctx, q, hold)
	return errors.Join(err, stop())
}

// pace inserts at a rate and collects how long each job waited.
type pace struct {
	begin time.Time

	mu   sync.Mutex
	took []time.Duration
}

// started is told when the job was due, as microseconds since the beginning.
func (p *pace) started(due int) {
	took := time.Since(p.begin) - time.Duration(due)*time.Microsecond
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = append(p.took, took)
}

func (p *pace) window() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.took
	p.took = nil
	return took
}

func (p *pace) run(ctx context.Context, q *orchQueue, hold time.Duration) error {
	ticker := time.NewTicker(heldBatch * time.Second / heldRate)
	defer ticker.Stop()
	next := heldWindow
	for time.Since(p.begin) < hold {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if err := q.insertNow(ctx, heldBatch, int(time.Since(p.begin)/time.Microsecond)); err != nil {
			return err
		}
		if at := time.Since(p.begin); at >= next {
			next += heldWindow
			took := p.window()
			fmt.Printf("t=%3.0fs  worked %5.0f/s  pick-up p50 %6.2f ms p99 %6.2f ms\n", at.Seconds(), rate(len(took), heldWindow),
				ms(percentile(took, 50)), ms(percentile(took, 99)))
		}
	}
	return nil
}
