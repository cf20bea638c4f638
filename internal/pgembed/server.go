package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Config says where the cluster is and how to run it.
type Config struct {
	Dir    string       // <root>/pg; made when missing
	BinDir string       // the directory of postgres and initdb; empty: look for them
	Logger *slog.Logger // nil: silent
	Extra  []string     // further settings, name=value, which win over orch's own
	// Unsafe trades the data's safety for speed: for tests.
	Unsafe   bool
	InitArgs []string // further arguments for initdb
}

// ErrKilled says that the server's process was ended by a signal that didn't come from here. Starting it again may help.
var ErrKilled = errors.New("postgres was killed")

// Server is a running PostgreSQL that belongs to this process.
type Server struct {
	cluster  *cluster
	conn     *pgx.ConnConfig
	lock     *lock
	process  *os.Process
	pid      int
	stopping atomic.Bool
	done     chan struct{}
	err      error         // set before done is closed
	turn     chan struct{} // one Stop at a time
}

// Start runs the cluster in cfg.Dir, made if there is none, and returns once it answers and holds the database orch.
// Whatever an earlier owner left running there is ended first. The caller calls Stop, after an unexpected end too.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	if err := c.makeDir(); err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	l, err := acquire(ctx, c.dir)
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	s := &Server{cluster: c, lock: l, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	if err := s.start(ctx); err != nil {
		l.release()
		return nil, fmt.Errorf("start the database: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	c, began := s.cluster, time.Now()
	major, err := c.major()
	if err != nil {
		return err
	}
	if err := c.resolve(ctx, major); err != nil {
		return err
	}
	if s.conn, err = connConfig(c.socket, Database); err != nil {
		return err
	}
	if err := c.removeLeftovers(ctx); err != nil {
		return err
	}
	if major == 0 {
		if err := c.initialise(ctx); err != nil {
			return fmt.Errorf("create the cluster: %w", err)
		}
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	if err := s.spawn(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.waitReady(ctx), s.Err()); err != nil {
		return errors.Join(err, s.end(context.WithoutCancel(ctx)))
	}
	if err := s.ensureDatabase(ctx); err != nil {
		return errors.Join(err, s.lately(), s.end(context.WithoutCancel(ctx)))
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, "database started",
		slog.Int("pid", s.pid), slog.String("version", c.install.Version), slog.Duration("took", time.Since(began)))
	return nil
}

// spawn starts postgres. It inherits an open, locked file, so that the kernel tells for as long as any process of the
// cluster lives, even where /proc doesn't show it (another container on the same volume).
func (s *Server) spawn(ctx context.Context) error {
	c := s.cluster
	alive, err := c.lockAlive(ctx)
	if err != nil {
		return err
	}
	defer alive.Close()
	out, err := c.openLog()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := c.command(ctx)
	cmd.Stdout, cmd.Stderr = out, out // a file: a pipe would die with us
	cmd.ExtraFiles = []*os.File{alive}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT // fast shutdown as soon as we die
	started := make(chan error, 1)
	go s.own(cmd, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	return nil
}

// own starts the server and waits for its end on one thread, since the kernel sends the death signal when the thread
// that forked ends, not the process.
func (s *Server) own(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	s.process, s.pid = cmd.Process, cmd.Process.Pid
	started <- nil
	err := cmd.Wait()
	if !s.stopping.Load() {
		s.err = fmt.Errorf("postgres ended: %s%s", cmd.ProcessState, s.cluster.logTail())
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			s.err = fmt.Errorf("%w (%s)%s", ErrKilled, status.Signal(), s.cluster.logTail())
		}
	} else if err != nil && cmd.ProcessState == nil {
		s.err = fmt.Errorf("wait for postgres: %w", err)
	}
	close(s.done)
}

// lockAlive takes the lock that each process of the cluster holds. After the sweep it is free, unless a process that we
// can't see lives on.
func (c *cluster) lockAlive(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "alive"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := lockWithin(ctx, f, 10*time.Second)
	if err == nil && !locked {
		err = fmt.Errorf("a PostgreSQL that this process can't see still runs in %s, perhaps in another container: stop it", c.dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// waitReady waits until the postmaster says that it takes connections. Recovery after a crash may take a while: ctx decides.
func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if file, err := readPIDFile(s.cluster.data); err == nil && file.pid == s.pid && file.ready {
			return nil
		}
		select {
		case <-s.done:
			return nil // Err says how
		case <-ctx.Done():
			return fmt.Errorf("wait for the database: %w%s", context.Cause(ctx), s.cluster.logTail())
		case <-tick.C:
		}
	}
}

// ensureDatabase proves that the server answers, and creates the database orch at the first start.
func (s *Server) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.ConnConfig(Database))
	var pgErr *pgconn.PgError
	if err == nil {
		return conn.Close(ctx)
	}
	if !errors.As(err, &pgErr) || pgErr.Code != "3D000" { // invalid_catalog_name
		return err
	}
	if conn, err = pgx.ConnectConfig(ctx, s.ConnConfig("postgres")); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "create database "+Database); err != nil {
		return errors.Join(fmt.Errorf("create the database %s: %w", Database, err), conn.Close(ctx))
	}
	return conn.Close(ctx)
}

// ConnConfig returns how to reach the given database: as the user orch over the unix socket.
func (s *Server) ConnConfig(database string) *pgx.ConnConfig {
	cfg := s.conn.Copy()
	cfg.Database = database
	return cfg
}

// lately says why the server ended, if it just did: a connection breaks a moment before the end is noticed.
func (s *Server) lately() error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	return s.Err()
}

// Done is closed once the server's process has ended, whoever wanted it.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why the server ended; nil while it runs and after Stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// PID returns the postmaster's process id.
func (s *Server) PID() int { return s.pid }

const maxLog = 8 << 20

// openLog opens the server's log; one old file is kept.
func (c *cluster) openLog() (*os.File, error) {
	path := c.logPath()
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (c *cluster) logPath() string { return filepath.Join(c.dir, "postgres.log") }

// logTail returns the last lines of the server's log for an error's text, which is where PostgreSQL says why.
func (c *cluster) logTail() string {
	const most = 2000
	f, err := os.Open(c.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(text))
}
