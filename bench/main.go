package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	if len(os.Args) > 1 && os.Args[1] == "queue" {
		return queueLoad(ctx, os.Args[2:])
	}
	jobs := flag.Int("jobs", 100_000, "jobs inserted and worked in each round of the comparison")
	rounds := flag.Int("rounds", 5, "rounds of the comparison; the table shows medians")
	scale := flag.Int("scale", 1_000_000, "rows of the large growth cases; finished rows go up to ten times that")
	hold := flag.Duration("hold", 2*time.Minute, "how long a reader holds its snapshot in the last growth case")
	only := flag.String("only", "", "compare or growth; both when empty")
	profile := flag.String("cpuprofile", "", "write a profile of this program to the file")
	flag.Parse()
	if *profile != "" {
		stop, err := profileTo(*profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}

	server, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if err := server.describe(ctx); err != nil {
		return err
	}
	if *only == "" || *only == "compare" {
		if err := compare(ctx, server, *jobs, *rounds); err != nil {
			return fmt.Errorf("compare: %w", err)
		}
	}
	if *only == "" || *only == "growth" {
		if err := growth(ctx, server, *scale, *hold); err != nil {
			return fmt.Errorf("growth: %w", err)
		}
	}
	return nil
}

func profileTo(path string) (stop func() error, err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// server is a private PostgreSQL with orch's own settings, in a directory that goes with it.
type server struct {
	dir string
	pg  *pgembed.Server
}

func start(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "orch-bench-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // as root, PostgreSQL runs as another user
		return nil, err
	}
	pg, err := pgembed.Start(ctx, pgembed.Config{Dir: filepath.Join(dir, "pg"), BinDir: os.Getenv("ORCH_POSTGRES_BIN")})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &server{dir: dir, pg: pg}, nil
}

func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(s.pg.Stop(ctx), os.RemoveAll(s.dir))
}

func (s *server) describe(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.pg.ConnConfig("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var version, sync, shared string
	err = conn.QueryRow(ctx, `select current_setting('server_version'), current_setting('synchronous_commit'), current_setting('shared_buffers')`).
		Scan(&version, &sync, &shared)
	if err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d processors, %s, PostgreSQL %s (synchronous_commit %s, shared_buffers %s)\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), version, sync, shared)
	return nil
}

const maxConns = 20 // of each contender's pool

// database makes an empty database and a pool on it.
func (s *server) database(ctx context.Context, name string) (*pgxpool.Pool, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pg.ConnConfig("postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{"drop database if exists " + name + " with (force)", "create database " + name, "checkpoint"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return db.Open(ctx, db.Config{Conn: s.pg.ConnConfig(name), MaxConns: maxConns, StatementTimeout: -1})
}

// migrate gives a database orch's schema.
func (s *server) migrate(ctx context.Context, name string) error {
	m, err := db.NewMigrator(migrations.Files, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, s.pg.ConnConfig(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = m.Apply(ctx, conn)
	return err
}
