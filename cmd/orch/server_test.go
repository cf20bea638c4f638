package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"orch/api"
	"orch/internal/client"
)

// patience bounds how long a test waits for something that has to happen.
const patience = 4 * time.Minute

// place is one data root with a repository, and what the tests start on it.
type place struct {
	t    *testing.T
	dir  string
	root string
	repo string
	env  []string // more variables for orch
	host string   // it runs on; empty: this one
}

// newPlace makes a repository with a test script, an agent, and an orch.yaml for them. The agent is a shell script.
func newPlace(t *testing.T, agent string) *place {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "serve-") //nolint:usetesting // as root its parents must let other users in
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, root: filepath.Join(dir, "root"), repo: filepath.Join(dir, "app")}
	t.Cleanup(func() {
		for _, left := range goneFrom(dir) {
			t.Errorf("left behind: %s", left)
		}
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	p.write("agent.sh", agent)
	p.write("app/test.sh", "echo tested >> "+dir+"/tests; true\n")
	p.git("init", "-q", "-b", "main")
	p.git("add", "-A")
	p.git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "first")
	p.orch("init", "--agent-cmd", "sh "+dir+"/agent.sh", p.repo)
	return p
}

func (p *place) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) read(name string) string {
	content, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(content)
}

func (p *place) git(args ...string) string {
	p.t.Helper()
	if len(args) > 0 && args[0] == "init" {
		args = append(args, p.repo)
	} else {
		args = append([]string{"-C", p.repo, "-c", "safe.directory=*"}, args...)
	}
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "ORCH_ROOT="+p.root, "ORCH_HTTP_ADDR=127.0.0.1:0", "ORCH_LOG_FORMAT=json", "ORCH_KILL_GRACE_S=1",
		"ORCH_API_TOKEN=", "ORCH_MAX_CONCURRENCY=4")
	cmd.Env = append(cmd.Env, p.env...)
	return cmd
}

func (p *place) orch(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("orch %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// server is a running `orch serve`.
type server struct {
	*daemon
	p      *place
	addr   string
	client *client.Client
}

// serve starts `orch serve` and waits until it is up.
func (p *place) serve(args ...string) *server {
	p.t.Helper()
	s := &server{daemon: p.start(append([]string{"serve"}, args...)...), p: p}
	s.addr = s.says("orch is up", func(l line) bool { return l.Msg == "orch is up" }).Address
	var err error
	if s.client, err = client.Dial(p.t.Context(), client.Config{Socket: filepath.Join(p.root, "orch.sock")}); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.client.Close)
	return s
}

// end sends a signal and waits for the process; it returns how it ended.
func (s *server) end(signal syscall.Signal) error {
	s.p.t.Helper()
	s.client.Close()
	return s.daemon.end(signal)
}

// add adds a task and returns its key.
func (s *server) add(title string) string {
	s.p.t.Helper()
	repo := "app"
	task, err := s.client.CreateTask(s.p.t.Context(), api.NewTask{Repo: &repo, Title: title})
	if err != nil {
		s.p.t.Fatal(err)
	}
	return task.Key
}

// until looks at a task until what says that it is as wanted.
func (s *server) until(key, what string, is func(d api.TaskDetail) bool) api.TaskDetail {
	s.p.t.Helper()
	var last api.TaskDetail
	eventually(s.p.t, key+": "+what, func(ctx context.Context) bool {
		d, err := s.client.GetTask(ctx, key)
		if err != nil {
			return false
		}
		last = d
		return is(d)
	})
	return last
}

func (s *server) landed(key string) api.TaskDetail {
	s.p.t.Helper()
	return s.until(key, "landed and cleaned up", func(d api.TaskDetail) bool {
		if d.Task.State == api.TaskBlocked {
			s.p.t.Fatalf("%s is blocked: %s", key, *d.Task.Reason)
		}
		return d.Task.State == api.TaskDone && d.Events[len(d.Events)-1].Kind == "retired"
	})
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, ask func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !ask(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("didn't come: %s", what)
		case <-ticker.C:
		}
	}
}
