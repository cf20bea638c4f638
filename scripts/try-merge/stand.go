package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"orch/internal/client"
)

// stand is a data root, a repository and a database of their own.
type stand struct {
	*try

	dir   string
	env   []string
	conn  *pgx.Conn
	asked error // why the last question to the database has no answer
}

// script is a file of the stand.
type script struct{ name, content string }

// newStand makes one. In scripts and settings, DIR stands for its directory.
func (t *try) newStand(ctx context.Context, name string, batch int, test string, env ...string) (*stand, error) {
	s := &stand{try: t, dir: filepath.Join(t.dir, name)}
	repo := filepath.Join(s.dir, "app")
	if err := os.MkdirAll(repo, 0o755); err != nil { //nolint:gosec // it holds no secrets
		return nil, fmt.Errorf("make a stand: %w", err)
	}
	for _, f := range []script{
		{"agent.sh", `case $(cat) in *"make it red"*) echo red > red ;; esac
echo "$ORCH_TASK" > "work-$ORCH_TASK" && git add . && git commit -qm "Work on $ORCH_TASK"
`},
		{"test.sh", test},
		{"app/README", "app\n"},
		{"orch.yaml", `repos:
  - {name: app, path: DIR/app, test: sh DIR/test.sh, batch: ` + strconv.Itoa(batch) + `}
agents:
  coder: {preset: command, command: sh DIR/agent.sh}
pipelines:
  default:
    - {stage: development, agent: coder, gates: [commits]}
    - {stage: deploy, gates: [branch_mergeable]}
`},
	} {
		content := strings.ReplaceAll(f.content, "DIR", s.dir)
		if err := os.WriteFile(filepath.Join(s.dir, f.name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("make a stand: %w", err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "."},
		{"-c", "user.name=try", "-c", "user.email=try@localhost", "commit", "-qm", "First"},
	} {
		if err := command(ctx, repo, "git", args...); err != nil {
			return nil, err
		}
	}
	admin, err := pgx.ConnectConfig(ctx, t.server.ConnConfig("postgres"))
	if err != nil {
		return nil, fmt.Errorf("make a database: %w", err)
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "create database "+name); err != nil {
		return nil, fmt.Errorf("make a database: %w", err)
	}
	config := t.server.ConnConfig(name)
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	query := url.Values{"host": {config.Host}, "port": {strconv.Itoa(int(config.Port))}, "user": {config.User}, "sslmode": {"disable"}}
	for _, entry := range os.Environ() { // whoever runs this may have an orch of their own
		if !strings.HasPrefix(entry, "ORCH_") || strings.HasPrefix(entry, "ORCH_POSTGRES_BIN=") {
			s.env = append(s.env, entry)
		}
	}
	s.env = append(s.env, "ORCH_ROOT="+filepath.Join(s.dir, "root"), "ORCH_CONFIG="+filepath.Join(s.dir, "orch.yaml"),
		"ORCH_DATABASE_URL=postgres:///"+name+"?"+query.Encode(), "ORCH_AUTO_MIGRATE=true", "ORCH_HTTP_ADDR=127.0.0.1:0",
		"ORCH_MAX_CONCURRENCY=2", "ORCH_MIN_FREE_MB=0")
	s.env = append(s.env, env...)
	return s, nil
}

// orch is a process of it.
type orch struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{}
}

// start starts a process of orch, which isn't bound to ctx: it is to end in its own way.
func (s *stand) start(ctx context.Context, args ...string) (*orch, error) {
	log, err := os.CreateTemp(s.dir, args[0]+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start orch: %w", err)
	}
	defer log.Close()
	o := &orch{cmd: exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.try.dir, "orch"), args...), log: log.Name(), gone: make(chan struct{})}
	o.cmd.Env, o.cmd.Stdout, o.cmd.Stderr = s.env, log, log
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start orch: %w", err)
	}
	go func() {
		_ = o.cmd.Wait()
		close(o.gone)
	}()
	return o, nil
}

func (o *orch) end(signal unix.Signal) {
	_ = o.cmd.Process.Signal(signal)
	<-o.gone
}

func (o *orch) said() string {
	text, err := os.ReadFile(o.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// client waits until the server is ready.
func (s *stand) client(ctx context.Context, o *orch) (c *client.Client, err error) {
	err = s.until(ctx, o, "it is ready", func() bool {
		if c == nil {
			if c, err = client.Dial(ctx, client.Config{Socket: filepath.Join(s.dir, "root", "orch.sock")}); err != nil {
				return false
			}
		}
		ready, err := c.Readiness(ctx)
		return err == nil && ready.Status == "ready"
	})
	return c, err
}

// until asks every few milliseconds until the answer is yes.
func (s *stand) until(ctx context.Context, o *orch, what string, ask func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !ask() {
		select {
		case <-o.gone:
			return fmt.Errorf("orch ended before %s:\n%s", what, o.said())
		case <-ctx.Done():
			return fmt.Errorf("it didn't come that %s: %w\n%s", what, errors.Join(ctx.Err(), s.asked), o.said())
		case <-ticker.C:
		}
	}
	return nil
}

// count asks the database for a number; -1 is no answer.
func (s *stand) count(ctx context.Context, sql string, args ...any) (n int) {
	if s.asked = s.conn.QueryRow(ctx, sql, args...).Scan(&n); s.asked != nil {
		return -1
	}
	return n
}

// cpu is the processor time of a process and of its children, as far as they have ended or live.
func cpu(pid int) (time.Duration, error) {
	ended, parents, err := processes()
	if err != nil {
		return 0, err
	}
	var ticks int
	for one, own := range ended {
		for p := one; p > 1; p = parents[p] {
			if p == pid {
				ticks += own
				break
			}
		}
	}
	const perSecond = 100 // of the interface, on every Linux
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// processes are the ticks and the parents of all processes.
func processes() (ticks, parents map[int]int, err error) {
	ticks, parents = map[int]int{}, map[int]int{}
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 15 {
			return nil, nil, errors.Join(err, fmt.Errorf("%s: %q", name, text))
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] { // own and of children, in programs and in the kernel
			n, _ := strconv.Atoi(field)
			ticks[pid] += n
		}
	}
	return ticks, parents, nil
}
