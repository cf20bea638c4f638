package main

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/worker"
)

const (
	kind = "noop"
	lane = "bench"
)

type orchArgs struct {
	N int `json:"n"`
}

type orchQueue struct {
	pool   *pgxpool.Pool
	listen *pgx.ConnConfig
	root   uuid.UUID
	queue  *queue.Queue
}

func newOrch(ctx context.Context, s *server) (contender, error) { return openOrch(ctx, s, "orch") }

func openOrch(ctx context.Context, s *server, name string) (*orchQueue, error) {
	pool, err := s.database(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, name); err != nil {
		return nil, err
	}
	q := &orchQueue{pool: pool, listen: s.pg.ConnConfig(name), root: uuid.New(), queue: queue.New(pool, queue.Config{})}
	_, err = pool.Exec(ctx, `insert into roots (id, host, path) values ($1, 'bench', '/')`, q.root)
	return q, err
}

func (q *orchQueue) insert(ctx context.Context, n int) error {
	for done := 0; done < n; done += batch {
		jobs := make([]queue.Insert, min(batch, n-done))
		for i := range jobs {
			jobs[i] = queue.Insert{Kind: kind, Lane: lane, Args: orchArgs{done + i}}
		}
		if _, err := bulk.EnqueueMany(ctx, q.pool, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (q *orchQueue) insertOne(ctx context.Context, n int) error {
	_, err := q.queue.Enqueue(ctx, queue.Insert{Kind: kind, Lane: lane, Args: orchArgs{n}})
	return err
}

// insertNow queues some jobs that all carry n.
func (q *orchQueue) insertNow(ctx context.Context, jobs, n int) error {
	all := make([]queue.Insert, jobs)
	for i := range all {
		all[i] = queue.Insert{Kind: kind, Lane: lane, Args: orchArgs{n}}
	}
	_, err := bulk.EnqueueMany(ctx, q.pool, all)
	return err
}

func (q *orchQueue) identity() queue.Worker {
	return queue.Worker{
		ID: uuid.New(), RootID: q.root, Host: "bench", BootID: "bench", PIDNamespace: "bench", PID: os.Getpid(), PIDStartedAt: 1,
		Version: "bench", Lanes: []string{lane},
	}
}

var errStop = errors.New("measured")

func (q *orchQueue) work(ctx context.Context, started func(int)) (func() error, error) {
	w, err := worker.New(worker.Config{
		Queue: q.queue, Worker: q.identity(), Lanes: map[string]int{lane: slots}, KindLane: map[string]string{kind: lane},
		Handlers: map[string]worker.Handler{kind: worker.HandlerFunc(func(_ context.Context, l *queue.Lease) error {
			job := l.Job()
			var args orchArgs
			if err := job.Decode(&args); err != nil {
				return err
			}
			started(args.N)
			return nil
		})},
		Poll: poll,
	})
	if err != nil {
		return nil, err
	}
	listener := db.NewListener(db.ListenerConfig{
		Connect:  func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, q.listen.Copy()) },
		Channels: []string{queue.ChannelJobs},
		OnNotify: func(_, lane string) { w.Wake(lane) },
	})
	ctx, cancel := context.WithCancelCause(ctx)
	ready := make(chan struct{}, 2)
	done := make(chan error, 2)
	for _, service := range []func(context.Context, func()) error{listener.Run, w.Run} {
		var once sync.Once
		go func() { done <- service(ctx, func() { once.Do(func() { ready <- struct{}{} }) }) }()
		<-ready
	}
	return func() error {
		cancel(errStop)
		return errors.Join(<-done, <-done)
	}, nil
}

func (q *orchQueue) completed(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, `select count(*) from jobs where state = 'succeeded'`).Scan(&n)
	return n, err
}

func (q *orchQueue) close() { q.pool.Close() }
