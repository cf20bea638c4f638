package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/queue/overview"
)

const (
	loadKinds   = 4  // that the queued jobs are spread over
	loadClients = 64 // connections that the requests are sent over
	idleWindow  = 10 * time.Second
)

// queueLoad polls GET /queue of an orch serve whose database is full of queued jobs: an open loop, so that an answer that is
// late delays no later request, and each is timed from when it was due.
func queueLoad(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("queue", flag.ExitOnError)
	jobs := flags.Int("jobs", 1_000_000, "queued jobs")
	failed := flags.Int("failed", 100_000, "failed jobs")
	perSecond := flags.Int("rate", 1_000, "requests a second")
	window := flags.Duration("for", 30*time.Second, "how long to poll")
	program := flags.String("orch", "", "the orch to measure; built from this tree when empty")
	database := flags.String("database", "", "an empty database on this machine, as a URL; a private PostgreSQL when empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *database == "" {
		private, err := start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, private.stop()) }()
		if err := private.describe(ctx); err != nil {
			return err
		}
		*database = urlOf(private.pg.ConnConfig("orch"))
	}
	l := &load{url: *database}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.start(ctx, *program); err != nil {
		return err
	}
	if err := l.fill(ctx, *jobs, *failed); err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	fmt.Printf("GET /queue with %d queued and %d failed jobs, %d requests a second for %s\n\n", *jobs, *failed, *perSecond, *window)
	return l.measure(ctx, *perSecond, *window)
}

func urlOf(cfg *pgx.ConnConfig) string {
	q := url.Values{"host": {cfg.Host}, "port": {strconv.Itoa(int(cfg.Port))}, "user": {cfg.User}, "sslmode": {"disable"}}
	if cfg.Password != "" {
		q.Set("password", cfg.Password)
	}
	return (&url.URL{Scheme: "postgres", Path: "/" + cfg.Database, RawQuery: q.Encode()}).String()
}

// load is an orch serve under measurement.
type load struct {
	url  string
	dir  string
	orch *exec.Cmd
	logs sync.WaitGroup
	addr string
	pool *pgxpool.Pool
	size atomic.Int64 // bytes of an answer
}

// start runs orch on the database until it answers.
func (l *load) start(ctx context.Context, program string) (err error) {
	if l.dir, err = os.MkdirTemp("", "orch-load-"); err != nil {
		return err
	}
	if program == "" {
		program = filepath.Join(l.dir, "orch")
		build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", program, "./cmd/orch") // from this module it would need all of orch's checksums
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build orch: %w", err)
		}
	}
	l.orch = exec.CommandContext(ctx, program, "serve")
	l.orch.Cancel = func() error { return l.orch.Process.Signal(syscall.SIGTERM) }
	l.orch.Env = append(os.Environ(), "ORCH_ROOT="+filepath.Join(l.dir, "root"), "ORCH_DATABASE_URL="+l.url, "ORCH_AUTO_MIGRATE=true",
		"ORCH_HTTP_ADDR=127.0.0.1:0", "ORCH_API_TOKEN=", "ORCH_LOG_FORMAT=json", "ORCH_LOG_LEVEL=info")
	stderr, err := l.orch.StderrPipe()
	if err != nil {
		return err
	}
	if err := l.orch.Start(); err != nil {
		return err
	}
	up := make(chan string, 1)
	l.logs.Go(func() { follow(stderr, up) })
	select {
	case l.addr = <-up:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.addr == "" {
		return errors.New("orch ended at its start")
	}
	l.pool, err = pgxpool.New(ctx, l.url)
	return err
}

// follow shows what goes wrong, and tells the address that orch listens on; nothing when it ends before it does.
func follow(log io.Reader, up chan<- string) {
	defer close(up)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct {
			Level, Msg, Address string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "WARN" || line.Level == "ERROR" {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
		if line.Msg == "orch is up" {
			up <- line.Address
		}
	}
}

func (l *load) close() error {
	var errs []error
	if l.pool != nil {
		l.pool.Close()
	}
	if l.orch != nil && l.orch.Process != nil {
		_ = l.orch.Process.Signal(syscall.SIGTERM)
		l.logs.Wait()
		if err := l.orch.Wait(); err != nil && l.addr != "" {
			errs = append(errs, fmt.Errorf("orch serve: %w", err))
		}
	}
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// fill queues jobs of kinds that nobody handles, in the lanes that orch works in, and waits for the table to be as it is
// after a while: vacuumed, with what was written on the disk.
func (l *load) fill(ctx context.Context, jobs, failed int) error {
	lanes := []string{"agents", "merge", "system", "bench"}
	for done := 0; done < jobs; done += batch {
		ins := make([]queue.Insert, min(batch, jobs-done))
		for i := range ins {
			n := (done + i) % loadKinds
			ins[i] = queue.Insert{Kind: "bench." + strconv.Itoa(n), Lane: lanes[n], Args: orchArgs{done + i}}
		}
		if _, err := bulk.EnqueueMany(ctx, l.pool, ins); err != nil {
			return err
		}
	}
	_, err := l.pool.Exec(ctx, `insert into jobs (kind, lane, max_attempts, state, finished_at)
		select 'bench.' || n % 4, ($2::text[])[1 + n % 4], 3, 'failed', now() from generate_series(1, $1::int) n`, failed, lanes)
	if err != nil {
		return err
	}
	for _, sql := range []string{`vacuum analyze jobs`, `checkpoint`} {
		if _, err := l.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) measure(ctx context.Context, perSecond int, window time.Duration) error {
	server, err := l.postmaster(ctx)
	if err != nil {
		return err
	}
	census, err := l.census(ctx)
	if err != nil {
		return err
	}
	before := processes{server, l.orch.Process.Pid}
	idle, err := before.during(func() error { return pause(ctx, idleWindow) })
	if err != nil {
		return err
	}
	var got result
	busy, err := before.during(func() (err error) {
		got, err = l.poll(ctx, perSecond, window)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("a census of the jobs takes %.1f ms (median of %d)\n", ms(percentile(census, 50)), len(census))
	fmt.Printf("answered %d of %d, %d errors, %d bytes each, oldest snapshot %d s\n", len(got.took), got.sent, got.sent-len(got.took), l.size.Load(), got.age)
	fmt.Printf("from when it was due: p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, at most %.2f ms\n",
		ms(percentile(got.took, 50)), ms(percentile(got.took, 99)), ms(permille(got.took, 999)), ms(percentile(got.took, 100)))
	fmt.Printf("processor time, %% of one core: PostgreSQL %.1f before, %.1f under load; orch %.1f before, %.1f under load\n",
		idle.postgres, busy.postgres, idle.orch, busy.orch)
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("load average of the machine: %s", text)
	}
	if got.first != nil {
		return fmt.Errorf("first error: %w", got.first)
	}
	return nil
}

// census times the one statement of a snapshot that depends on how many jobs there are.
func (l *load) census(ctx context.Context) (took []time.Duration, err error) {
	reader := overview.NewReader(l.pool)
	for range 21 {
		begin := time.Now()
		if _, err := reader.Census(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

func permille(took []time.Duration, p int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, len(sorted)*p/1000)]
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// postmaster is the process whose children all of PostgreSQL's are.
func (l *load) postmaster(ctx context.Context) (pid int, err error) {
	var backend int
	if err := l.pool.QueryRow(ctx, `select pg_backend_pid()`).Scan(&backend); err != nil {
		return 0, err
	}
	stat, err := readStat(backend)
	if err != nil {
		return 0, fmt.Errorf("the database isn't on this machine: %w", err)
	}
	return stat.parent, nil
}

// result is what came of the polling.
type result struct {
	sent  int
	took  []time.Duration // of those that were answered right
	age   int             // of the oldest snapshot, in seconds
	first error
}

func (l *load) poll(ctx context.Context, perSecond int, window time.Duration) (result, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: loadClients, MaxConnsPerHost: loadClients}}
	defer client.CloseIdleConnections()
	total := int(window.Seconds() * float64(perSecond))
	r := result{sent: total, took: make([]time.Duration, 0, total)}
	due := make(chan time.Time, total)
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range loadClients {
		clients.Go(func() {
			for at := range due {
				age, err := l.ask(ctx, client)
				took := time.Since(at)
				mu.Lock()
				if err != nil && r.first == nil {
					r.first = err
				} else if err == nil {
					r.took, r.age = append(r.took, took), max(r.age, age)
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	var err error
	for n := range total {
		at := begin.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		if wait := time.Until(at); wait > 0 {
			if err = pause(ctx, wait); err != nil {
				break
			}
		}
		due <- at
	}
	close(due)
	clients.Wait()
	return r, err
}

func (l *load) ask(ctx context.Context, client *http.Client) (age int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.addr+"/queue", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(body), `"snapshot":{"error_code":null,"status":"ok"}`) {
		return 0, fmt.Errorf("%s: %.200s", answer.Status, body)
	}
	l.size.Store(int64(len(body)))
	return strconv.Atoi(answer.Header.Get("Age"))
}
