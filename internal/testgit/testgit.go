// Package testgit makes small real git repositories for tests, isolated from the developer's configuration.
package testgit

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repo is a repository with a checkout that lives as long as its test.
type Repo struct {
	Dir string
	tb  testing.TB
}

// New makes a repository on branch main whose first commit has files (path → content).
func New(tb testing.TB, files map[string]string) *Repo {
	tb.Helper()
	return NewAt(tb, filepath.Join(tb.TempDir(), "repo"), files)
}

// NewAt is New in a directory of the caller's choice; init are more flags for git init.
func NewAt(tb testing.TB, dir string, files map[string]string, init ...string) *Repo {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	r := Open(tb, dir)
	r.Git(append([]string{"init", "-q", "-b", "main"}, init...)...)
	if files != nil {
		r.Commit("first", files)
	}
	return r
}

// NewBare makes a bare repository whose branch main has one commit with files.
func NewBare(tb testing.TB, files map[string]string) *Repo {
	tb.Helper()
	work := New(tb, files)
	dir := filepath.Join(tb.TempDir(), "bare.git")
	work.Git("clone", "-q", "--bare", ".", dir)
	return Open(tb, dir)
}

// Open gives access to a repository that is there already.
func Open(tb testing.TB, dir string) *Repo {
	tb.Helper()
	return &Repo{Dir: dir, tb: tb}
}

// Git runs git in the repository and returns its output without the last newline; a failure ends the test.
func (r *Repo) Git(args ...string) string {
	r.tb.Helper()
	out, err := r.Try(args...)
	if err != nil {
		r.tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Try is Git for a command that may fail; its output has what it wrote to stderr too.
func (r *Repo) Try(args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = r.Dir
	cmd.Env = Env()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := stdout.String()
	if err != nil {
		out += stderr.String()
	}
	return strings.TrimSuffix(out, "\n"), err
}

// Write writes files (path → content) into the checkout.
func (r *Repo) Write(files map[string]string) {
	r.tb.Helper()
	for name, content := range files {
		path := filepath.Join(r.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			r.tb.Fatal(err)
		}
	}
}

// Read is the content of a file of the checkout; a missing one ends the test.
func (r *Repo) Read(name string) string {
	r.tb.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, filepath.FromSlash(name)))
	if err != nil {
		r.tb.Fatal(err)
	}
	return string(b)
}

// Commit writes files, commits everything that is in the checkout and returns the commit.
func (r *Repo) Commit(message string, files map[string]string) string {
	r.tb.Helper()
	r.Write(files)
	r.Git("add", "-A")
	r.Git("commit", "-q", "--allow-empty", "-m", message)
	return r.Head()
}

// Head is the commit of HEAD.
func (r *Repo) Head() string {
	r.tb.Helper()
	return r.Git("rev-parse", "HEAD")
}

// Env is an environment in which git knows nobody's configuration and has fixed identities.
func Env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann Author", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Cal Committer", "GIT_COMMITTER_EMAIL=cal@example.com",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
}

// Remove removes a path below the repository's directory, with all that is in it; "" is the directory itself.
func (r *Repo) Remove(name string) {
	r.tb.Helper()
	if err := os.RemoveAll(filepath.Join(r.Dir, filepath.FromSlash(name))); err != nil {
		r.tb.Fatal(err)
	}
}

// Symlink makes a symbolic link at name.
func (r *Repo) Symlink(target, name string) {
	r.tb.Helper()
	if err := os.Symlink(target, filepath.Join(r.Dir, filepath.FromSlash(name))); err != nil {
		r.tb.Fatal(err)
	}
}
