package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverArgs struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	started func(int)
}

// Work implements river.Worker.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.started(job.Args.N)
	return nil
}

type riverQueue struct {
	pool     *pgxpool.Pool
	inserter *river.Client[pgx.Tx]
}

func newRiver(ctx context.Context, s *server) (contender, error) {
	pool, err := s.database(ctx, "river")
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	// The same intervals for the inserting client: they also limit how often it notifies.
	client, err := river.NewClient(driver, riverConfig())
	return &riverQueue{pool, client}, err
}

func riverConfig() *river.Config {
	return &river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: poll, Logger: silent()}
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (q *riverQueue) insert(ctx context.Context, n int) error {
	for done := 0; done < n; done += batch {
		params := make([]river.InsertManyParams, min(batch, n-done))
		for i := range params {
			params[i] = river.InsertManyParams{Args: riverArgs{done + i}}
		}
		if _, err := q.inserter.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func (q *riverQueue) insertOne(ctx context.Context, n int) error {
	_, err := q.inserter.Insert(ctx, riverArgs{n}, nil)
	return err
}

func (q *riverQueue) work(ctx context.Context, started func(int)) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{started: started})
	config := riverConfig()
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}
	config.Workers = workers
	client, err := river.NewClient(riverpgxv5.New(q.pool), config)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return client.Stop(ctx) }, nil
}

func (q *riverQueue) completed(ctx context.Context) (n int, err error) {
	// Its completer keeps the newest ends in memory: only what the table says counts.
	err = q.pool.QueryRow(ctx, `select count(*) from river_job where state = 'completed'`).Scan(&n)
	return n, err
}

func (q *riverQueue) close() { q.pool.Close() }
