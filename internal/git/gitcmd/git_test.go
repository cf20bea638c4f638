package gitcmd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

func TestRunIsIsolated(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	home := t.TempDir()
	config := "[core]\n\tpager = touch " + marker + "\n\tfsmonitor = touch " + marker + "\n[alias]\n\tversion = !touch " + marker + "\n[user]\n\tname = Developer\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", "/nowhere")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, ".gitconfig"))
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.Run(t.Context(), "", nil, "config", "--list", "--show-scope")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "Developer") || strings.Contains(string(out), "global") {
		t.Errorf("the developer's configuration is read:\n%s", out)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program of the developer's configuration ran")
	}
}

func TestRunTellsBeforeAndAfterEachCommand(t *testing.T) {
	t.Parallel()
	var points []string
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{At: func(point string) { points = append(points, point) }}))
	points = nil
	_, _ = g.Run(t.Context(), "", nil, "-c", "a.b=c", "config", "--list")
	if _, err := g.Run(t.Context(), "/nowhere", nil, "show-ref"); err == nil {
		t.Error("there is a repository nowhere")
	}
	if got := strings.Join(points, " "); got != "git:config:before git:config:after git:show-ref:before git:show-ref:after" {
		t.Errorf("called with %s", got)
	}
}

// The one filter whose name is known: whatever a repository says of it, it runs nothing.
func TestLFSIsOverruled(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	r := testgit.New(t, map[string]string{"a": "1\n", ".gitattributes": "a filter=lfs\n"})
	marker := filepath.Join(t.TempDir(), "ran")
	for _, key := range []string{"clean", "smudge", "process"} {
		r.Git("config", "filter.lfs."+key, "touch "+marker+"; cat")
	}
	r.Git("config", "filter.lfs.required", "true")
	gitDir := filepath.Join(r.Dir, ".git")
	for _, args := range [][]string{{"hash-object", "--", "a"}, {"cat-file", "--filters", "HEAD:a"}} {
		if _, err := g.RunTree(t.Context(), gitDir, r.Dir, "", nil, args...); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the repository's filter ran")
	}
}

func TestRunError(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	_, err := g.Run(t.Context(), "", nil, "ls-remote", "--", "https://joe:secret@127.0.0.1:1/x.git")
	var ge *gitcmd.Error
	if !errors.As(err, &ge) || ge.Code != 128 {
		t.Fatalf("got %v", err)
	}
	if all := err.Error() + ge.Stderr + strings.Join(ge.Args, " "); strings.Contains(all, "secret") || !strings.Contains(all, "***@") {
		t.Errorf("credentials in %q", all)
	}
}

func TestCancelEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	pidFile := filepath.Join(t.TempDir(), "pid")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() {
		script := "!sleep 1000 & echo $! >" + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; trap '' TERM; wait; sleep 1000"
		_, err := g.Run(ctx, "", nil, "-c", "alias.hang="+script, "hang")
		done <- err
	}()
	var pid int
	poll(t, func() bool {
		content, err := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil && pid > 0
	})
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	poll(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{Timeout: time.Second}))
	if _, err := g.Run(t.Context(), "", nil, "-c", "alias.hang=!exec sleep 1000", "hang"); !errors.Is(err, gitcmd.ErrTimeout) {
		t.Fatalf("got %v", err)
	}
	long := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	call := gitcmd.Call{Args: []string{"-c", "alias.hang=!exec sleep 1000", "hang"}, Timeout: time.Second}
	if _, err := long.Do(t.Context(), call); !errors.Is(err, gitcmd.ErrTimeout) {
		t.Fatalf("a call with a time of its own: %v", err)
	}
}

// git says "unable to lock" or nothing at all when it couldn't write: what it failed of is found where it wrote.
func TestFailureOnAFullDiskIsOne(t *testing.T) {
	t.Parallel()
	r := testgit.New(t, map[string]string{"a": "1\n"})
	gitDir := filepath.Join(r.Dir, ".git")
	fails := func(free uint64, gitDir, workTree string) error {
		t.Helper()
		g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
		g.SetFree(free)
		_, err := g.RunTree(t.Context(), gitDir, workTree, "", nil, "rev-parse", "--verify", "nothing")
		if gitcmd.ExitCode(err) <= 0 {
			t.Fatalf("it doesn't fail as git does: %v", err)
		}
		return err
	}
	tests := map[string]struct {
		free             uint64
		gitDir, workTree string
		full             bool
	}{
		"no block left":            {0, gitDir, "", true},
		"too few for a ref":        {15, gitDir, "", true},
		"where the work tree is":   {0, "", r.Dir, true},
		"room enough":              {16, gitDir, r.Dir, false},
		"nowhere to write":         {0, "", "", false},
		"a directory that is gone": {16, filepath.Join(r.Dir, "gone"), "", false},
	}
	for name, tt := range tests {
		if err := fails(tt.free, tt.gitDir, tt.workTree); errors.Is(err, syscall.ENOSPC) != tt.full {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	g.SetFree(0)
	if _, err := g.Run(t.Context(), gitDir, nil, "rev-parse", "HEAD"); err != nil {
		t.Errorf("what worked is no failure: %v", err)
	}
}

func TestTooOld(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho git version 2.37.9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := gitcmd.New(t.Context(), gitcmd.Config{Program: program}); !errors.Is(err, gitcmd.ErrTooOld) {
		t.Errorf("got %v", err)
	}
	if _, err := gitcmd.New(t.Context(), gitcmd.Config{Program: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a missing program is accepted")
	}
}
