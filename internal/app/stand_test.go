package app

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/client"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// patience bounds every wait; it is no expectation. A landing waits two minutes for a lock that a stopped process has.
const patience = 4 * time.Minute

// stand is a data root with a repository and a database, on which processes of orch are started and killed.
type stand struct {
	t    *testing.T
	dir  string
	repo *testgit.Repo
	pool *pgxpool.Pool
	env  []string
	root string // name of its data root
}

// newStand has an agent that notes each start and works until it may end, and a test that notes each start.
func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{t: t, dir: testdb.Dir(t), pool: testdb.New(t), root: "root"}
	t.Cleanup(func() { s.until("everything is gone", func() bool { return len(s.processes()) == 0 }) })
	s.write("agent.sh", `echo $$ >> `+s.dir+`/starts
echo before
while [ ! -e `+s.dir+`/go ]; do sleep 0.02; done
echo after
echo done > work && git add work && git commit -qm "Do it"
`)
	s.write("test.sh", `echo $$ >> `+s.dir+`/tests
echo checking
while [ ! -e `+s.dir+`/pass ]; do sleep 0.02; done
test -f work
`)
	s.repo = testgit.NewAt(t, filepath.Join(s.dir, "app"), map[string]string{"README": "app\n"})
	s.write("orch.yaml", `repos:
  - {name: app, path: `+s.repo.Dir+`, test: sh `+s.dir+`/test.sh}
agents:
  coder: {preset: command, command: sh `+s.dir+`/agent.sh}
`)
	s.on(testdb.ConnConfig(s.pool))
	return s
}

// on chooses how the processes reach the database, and adds variables.
func (s *stand) on(cfg *pgx.ConnConfig, more ...string) {
	s.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GORACE=atexit_sleep_ms=0",
		"ORCH_ROOT=" + filepath.Join(s.dir, s.root), "ORCH_CONFIG=" + filepath.Join(s.dir, "orch.yaml"), "ORCH_DATABASE_URL=" + testdb.URL(cfg),
		"ORCH_KILL_GRACE_S=1", "ORCH_MAX_CONCURRENCY=2", "ORCH_MIN_FREE_MB=0",
	}, more...)
}

func (s *stand) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// lines is how many lines a file of the stand has.
func (s *stand) lines(name string) int {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return bytes.Count(content, []byte("\n"))
}

func (s *stand) count(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// processes lists what lives of the stand: what was started with a path of it, or works in it.
func (s *stand) processes() []string {
	var found []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range entries {
		stat, err := os.ReadFile(filepath.Join(proc, "stat"))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if strings.HasPrefix(cwd+"/", s.dir+"/") || bytes.Contains(cmdline, []byte(s.dir+"/")) {
			found = append(found, filepath.Base(proc)+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// until asks until the answer is yes.
func (s *stand) until(what string, ask func() bool) {
	s.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); !ask(); <-ticker.C {
		if time.Now().After(end) {
			s.t.Fatalf("didn't come: %s; processes: %q", what, s.processes())
		}
	}
}

// serving is one process of orch.
type serving struct {
	*stand
	cmd    *exec.Cmd
	client *client.Client
	log    string        // file
	gone   chan struct{} // closed when it has ended
}

// serve starts one that dies at a point, and waits until it is up.
func (s *stand) serve(point string) *serving { return s.start("serve", point).dial() }

// start starts a process of orch in a role of the test binary, and waits until it is up.
func (s *stand) start(role, arg string) *serving { return s.startIn(role, arg, nil) }

// startIn is start in a place of its own, which apart makes of a command.
func (s *stand) startIn(role, arg string, apart func(*exec.Cmd) error) *serving {
	s.t.Helper()
	srv := &serving{stand: s, cmd: exec.Command(os.Args[0], role, arg), gone: make(chan struct{})}
	srv.cmd.Env = slices.Clone(s.env)
	if apart != nil {
		if err := apart(srv.cmd); err != nil {
			s.t.Fatal(err)
		}
	}
	log, err := os.CreateTemp(s.dir, "log-")
	if err != nil {
		s.t.Fatal(err)
	}
	srv.cmd.Stderr, srv.log = log, log.Name()
	out, err := srv.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := srv.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(srv.gone)
		_ = srv.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		srv.end(unix.SIGTERM)
		if content, err := os.ReadFile(log.Name()); err == nil && s.t.Failed() {
			s.t.Logf("orch %s %q, pid %d, said:\n%s", role, arg, srv.cmd.Process.Pid, content)
		}
		_ = log.Close()
	})
	if said != "up\n" {
		s.t.Fatalf("orch isn't up: %q, %v", said, err)
	}
	return srv
}

// dial has the client of one that serves.
func (s *serving) dial() *serving {
	s.t.Helper()
	var err error
	if s.client, err = client.Dial(s.t.Context(), client.Config{Socket: filepath.Join(s.dir, s.root, "orch.sock")}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.client.Close)
	return s
}

// says says whether the process has logged a message.
func (s *serving) says(message string) bool {
	s.t.Helper()
	content, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Contains(string(content), message)
}

func (s *serving) end(signal unix.Signal) {
	select {
	case <-s.gone:
		return
	default:
	}
	_ = s.cmd.Process.Signal(signal)
	s.ended()
}

// ended waits for the end of the process and says how it was.
func (s *serving) ended() string {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		s.t.Error("orch didn't end")
		<-s.gone
	}
	return s.cmd.ProcessState.String()
}

func (s *serving) add() string {
	s.t.Helper()
	task, err := s.client.CreateTask(s.t.Context(), api.NewTask{Repo: new("app"), Title: "Do it"})
	if err != nil {
		s.t.Fatal(err)
	}
	return task.Key
}

// at waits until a task is as wanted.
func (s *serving) at(key, what string, is func(d api.TaskDetail) bool) api.TaskDetail {
	s.t.Helper()
	var last api.TaskDetail
	s.until(fmt.Sprintf("%s: %s", key, what), func() bool {
		d, err := s.client.GetTask(s.t.Context(), key)
		if err != nil {
			return false
		}
		last = d
		return is(d)
	})
	return last
}

func (s *serving) landed(key string) api.TaskDetail {
	s.t.Helper()
	return s.at(key, "it has landed", func(d api.TaskDetail) bool {
		if d.Task.State == api.TaskBlocked {
			s.t.Fatalf("%s is blocked: %s", key, *d.Task.Reason)
		}
		return d.Task.State == api.TaskDone && d.Events[len(d.Events)-1].Kind == "retired"
	})
}

// working waits until the agent works, and answers its run.
func (s *serving) working(key string) api.Run {
	s.t.Helper()
	return s.at(key, "its agent works", func(d api.TaskDetail) bool {
		return len(d.Runs) > 0 && d.Runs[0].State == api.RunRunning && d.Runs[0].Pid != nil && s.lines("starts") > 0
	}).Runs[0]
}
