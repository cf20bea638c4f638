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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// serveVariable makes the test binary a process that runs a database until its standard input ends.
const serveVariable = "PGEMBED_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveVariable); dir != "" {
		os.Exit(serve(dir))
	}
	code := m.Run()
	if prototype.dir != "" {
		code = max(code, boolToInt(os.RemoveAll(prototype.dir) != nil))
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func serve(dir string) int {
	s, err := Start(context.Background(), Config{Dir: dir, Unsafe: os.Getenv("PGEMBED_TEST_UNSAFE") != ""})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready", s.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(context.Background()); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// served is a process of ours that runs a database.
type served struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pid   int // of the postmaster
}

func startServed(t *testing.T, cmd *exec.Cmd, dir string) *served {
	t.Helper()
	cmd.Env = append(os.Environ(), serveVariable+"="+dir, "PGEMBED_TEST_UNSAFE=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &served{cmd: cmd, stdin: stdin}
	if _, err := fmt.Fscanf(stdout, "ready %d\n", &s.pid); err != nil {
		rest, _ := io.ReadAll(stdout)
		t.Fatalf("serve: %v %s", err, rest)
	}
	return s
}

// prototype is a stopped cluster that tests copy, since making one takes most of a second.
var prototype struct {
	once sync.Once
	dir  string
	err  error
}

// newDir returns a directory that the server's user can enter, for a cluster to be made in.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "pg")
}

func tempDir() (string, error) {
	base := ""
	var memory unix.Statfs_t
	const shm, enough = "/dev/shm", 1 << 30 // containers often have little of it
	if unix.Statfs(shm, &memory) == nil && memory.Bavail*uint64(memory.Bsize) > enough && unix.Access(shm, unix.W_OK) == nil {
		base = shm // small files are slow elsewhere
	}
	dir, err := os.MkdirTemp(base, "orch-pgembed-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// oldDir returns a directory with a stopped cluster that holds a table with a row.
func oldDir(t *testing.T) string {
	t.Helper()
	prototype.once.Do(func() {
		prototype.dir, prototype.err = tempDir()
		if prototype.err != nil {
			return
		}
		var s *Server
		if s, prototype.err = Start(context.Background(), Config{Dir: filepath.Join(prototype.dir, "pg"), Unsafe: true}); prototype.err != nil {
			return
		}
		prototype.err = errors.Join(execute(s, "create table kept (n int); insert into kept values (42)"), s.Stop(context.Background()))
	})
	if prototype.err != nil {
		t.Fatal(prototype.err)
	}
	dir := newDir(t)
	if out, err := exec.Command("cp", "-a", filepath.Join(prototype.dir, "pg"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func execute(s *Server, sql string) error {
	conn, err := pgx.ConnectConfig(context.Background(), s.ConnConfig(Database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), sql)
	return errors.Join(err, conn.Close(context.Background()))
}

// start runs the database and stops it at the test's end.
func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(context.Background(), Config{Dir: dir, Unsafe: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// wantKept checks that the row of oldDir is still there.
func wantKept(t *testing.T, cfg *pgx.ConnConfig) {
	t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var n int
	if err := conn.QueryRow(context.Background(), "select n from kept").Scan(&n); err != nil || n != 42 {
		t.Fatalf("kept: %d, %v", n, err)
	}
}

// refused starts and expects an error that contains all words.
func refused(t *testing.T, cfg Config, words ...string) error {
	t.Helper()
	s, err := Start(context.Background(), cfg)
	if err == nil {
		stop(t, s)
		t.Fatal("started")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q isn't in %q", word, err)
		}
	}
	return err
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
