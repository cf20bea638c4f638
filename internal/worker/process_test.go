package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/worker"
)

// processVariable makes the test binary a worker process; it holds a processConfig.
const processVariable = "ORCH_WORKER_TEST_PROCESS"

// processConfig is what a worker process is told.
type processConfig struct {
	Role     string        `json:"role"` // whose handlers it has: "hold" or "chaos"
	URL      string        `json:"url"`
	Root     uuid.UUID     `json:"root"`
	LeaseTTL time.Duration `json:"lease_ttl"`
	Grace    time.Duration `json:"grace"`
	ClockOff time.Duration `json:"clock_off"` // by how much its clock has to be wrong
}

// runProcess is the worker process: wired as the program is, with a listener, a recovery loop, and signals that are
// recorded and nothing else.
func runProcess(raw string) error {
	var cfg processConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		return err
	}
	if err := checkClock(cfg.ClockOff); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	conn, err := db.ParseURL(cfg.URL)
	if err != nil {
		return err
	}
	pool, err := db.Open(ctx, db.Config{Conn: conn, MaxConns: 24, StatementTimeout: cfg.LeaseTTL, Logger: log})
	if err != nil {
		return err
	}
	q := queue.New(pool, queue.Config{
		LeaseTTL: cfg.LeaseTTL, QueryTimeout: min(cfg.LeaseTTL, 10*time.Second), BackoffBase: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond, Logger: log,
	})
	self, err := process.Self()
	if err != nil {
		return err
	}
	w, err := newProcessWorker(cfg, q, self, log)
	if err != nil {
		return err
	}
	go func() {
		<-signals
		stop(errStop)
		<-signals
		w.HurryUp()
	}()
	var services sync.WaitGroup
	services.Go(func() { _ = processListener(conn, w, log).Run(ctx, func() {}) }) // its hints aren't needed
	services.Go(func() { processRecovery(ctx, cfg, pool, q, self) })
	err = w.Run(ctx, func() { fmt.Println("ready") })
	services.Wait()
	fmt.Println("stats", w.Stats())
	return err
}

// checkClock makes sure that a clock that is to be wrong is.
func checkClock(off time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	if got := time.Since(time.Unix(now.Unix())).Round(time.Minute); got != off {
		return fmt.Errorf("the clock is off by %s, not by %s", got, off)
	}
	return nil
}

func newProcessWorker(cfg processConfig, q *queue.Queue, self process.Identity, log *slog.Logger) (*worker.Worker, error) {
	roles := map[string]handlers{"hold": holdHandlers(), "chaos": chaosHandlers(q)}
	kindLane := map[string]string{}
	for kind := range roles[cfg.Role] {
		kindLane[kind] = "lane"
	}
	w, err := worker.New(worker.Config{
		Queue: q,
		Worker: queue.Worker{
			ID: uuid.New(), RootID: cfg.Root, Host: self.Host, BootID: self.BootID, PIDNamespace: self.PIDNamespace,
			PID: self.PID, PIDStartedAt: self.StartedAt, Version: "test", Lanes: []string{"lane"},
		},
		Lanes: map[string]int{"lane": 16}, Handlers: roles[cfg.Role], KindLane: kindLane,
		Poll: 300 * time.Millisecond, Heartbeat: cfg.LeaseTTL / 4, StopGrace: cfg.Grace, Logger: log,
	})
	if err == nil {
		w.HurryWithin(time.Minute)
	}
	return w, err
}

func processListener(conn *pgx.ConnConfig, w *worker.Worker, log *slog.Logger) *db.Listener {
	return db.NewListener(db.ListenerConfig{
		Connect:  func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Copy()) },
		Channels: []string{queue.ChannelJobs, queue.ChannelControl},
		OnNotify: func(channel, payload string) {
			if channel == queue.ChannelControl {
				w.BeatNow()
				return
			}
			w.Wake(payload)
		},
		OnConnect: func() { w.Wake("") }, Logger: log,
	})
}

// processRecovery gives back what dead and silent workers held, as every orch process does.
func processRecovery(ctx context.Context, cfg processConfig, pool *pgxpool.Pool, q *queue.Queue, self process.Identity) {
	ticker := time.NewTicker(cfg.LeaseTTL / 2)
	defer ticker.Stop()
	for {
		_, dead := queuetest.TakeDead(ctx, pool, q, self.BootID, self.PIDNamespace, func(w queue.Worker) bool {
			return process.Probe(process.Identity{
				Host: w.Host, BootID: w.BootID, PIDNamespace: w.PIDNamespace, PID: w.PID, StartedAt: w.PIDStartedAt,
			}) == process.Dead
		})
		_, expired := queuetest.TakeExpired(ctx, pool, q)
		_ = errors.Join(dead, expired) // tried again
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// holdHandlers let the test decide when their job ends: when standard input does.
func holdHandlers() handlers {
	return handlers{
		"obedient": fn(func(ctx context.Context, l *queue.Lease) error {
			if err := noted(ctx, l, "begin"); err != nil {
				return err
			}
			fmt.Println("began")
			if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
				return err
			}
			return noted(ctx, l, "last")
		}),
		"stubborn": fn(func(context.Context, *queue.Lease) error {
			fmt.Println("began")
			select {} // and never returns, whatever it is told
		}),
	}
}

// workerProcess is a worker process as its test sees it.
type workerProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	ready  bool
	lines  chan string // of standard output
	log    *logBuffer  // standard error
	exited chan struct{}
	frozen atomic.Bool
}

// startProcess starts one; program is the test binary unless named.
func startProcess(t *testing.T, program string, cfg processConfig, env ...string) *workerProcess {
	t.Helper()
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if program == "" {
		program = os.Args[0]
	}
	p := &workerProcess{t: t, cmd: exec.Command(program), lines: make(chan string, 1000), log: &logBuffer{}, exited: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), env...), processVariable+"="+string(raw))
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	go func() {
		defer close(p.exited)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		_ = p.cmd.Wait() // the test looks at the state
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		queuetest.Wait(t, "end of a worker process", p.exited)
	})
	return p
}

// says waits for a line of standard output.
func (p *workerProcess) says(word string) string {
	p.t.Helper()
	for {
		select {
		case line := <-p.lines:
			if strings.HasPrefix(line, word) {
				return line
			}
		case <-p.exited:
			p.t.Fatalf("the worker process ended before it said %q:\n%s", word, p.log.tail())
		}
	}
}

// isReady waits until it has said so.
func (p *workerProcess) isReady() {
	p.t.Helper()
	if !p.ready {
		p.says("ready")
		p.ready = true
	}
}

func (p *workerProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// exits waits for the process and returns its exit code.
func (p *workerProcess) exits() int {
	p.t.Helper()
	queuetest.Wait(p.t, "exit of the worker process", p.exited)
	return p.cmd.ProcessState.ExitCode()
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := bytes.TrimSpace(b.buf.Bytes())
	return string(all[max(0, len(all)-2000):])
}
