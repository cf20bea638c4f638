package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
	"orch/internal/forge/local/gitdir"
	"orch/internal/forge/local/problem"
)

// repository is a git repository on this machine.
type repository struct {
	path   string // as configured, made absolute
	gitDir string
}

// open finds the repository at a location. Only its top is accepted: a landing must never hit a repository that
// somebody didn't mean.
func (l *Local) open(location string) (*repository, error) {
	path, err := filepath.Abs(location)
	if err != nil {
		return nil, fmt.Errorf("find repository %s: %w", location, err)
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, problem.New(forge.CodeMissing, "give the path of a git repository on this machine", "there is no directory %s", path)
	}
	dotGit := filepath.Join(path, ".git")
	info, err := os.Stat(dotGit)
	switch {
	case err == nil && info.IsDir() && gitdir.Is(dotGit):
		return &repository{path: path, gitDir: dotGit}, nil
	case err == nil && info.Mode().IsRegular():
		return nil, problem.New(forge.CodeLinkedWorktree, "give the repository that it belongs to"+mainRepository(dotGit),
			"%s is a linked work tree or a submodule", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("find repository %s: %w", path, err)
	case gitdir.Is(path) && filepath.Base(path) == ".git":
		return nil, problem.New(forge.CodeNotToplevel, "give "+filepath.Dir(path), "%s is the inside of a repository", path)
	case gitdir.Is(path):
		return &repository{path: path, gitDir: path}, nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if gitdir.Is(filepath.Join(dir, ".git")) || gitdir.Is(dir) {
			return nil, problem.New(forge.CodeNotToplevel, "give "+dir, "%s is a directory within the repository %s", path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil, problem.New(forge.CodeNotRepository, "run git init and commit there, or give another path", "%s is not a git repository", path)
		}
	}
}

// branches has the short names of all branches, sorted.
func (l *Local) branches(ctx context.Context, r *repository) ([]string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "for-each-ref", "--format=%(refname)", "refs/heads/")
	if err != nil {
		return nil, fmt.Errorf("list branches of %s: %w", r.path, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.TrimPrefix(strings.TrimSpace(line), "refs/heads/"))
	}
	return names, nil
}

// base is the branch to land on: the configured one, else the one HEAD is on, else main or master.
func (l *Local) base(ctx context.Context, r *repository, configured string) (string, error) {
	names, err := l.branches(ctx, r)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		if _, err := l.git.Run(ctx, r.gitDir, nil, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err == nil {
			return "", problem.New(forge.CodeNoBranch, "make the branch that tasks should land on", "%s has no branch, only a commit that is checked out", r.path)
		}
		return "", problem.New(forge.CodeNoCommits, "make a first commit on the branch that tasks should land on", "%s has no commits yet", r.path)
	}
	exist := "branches there: " + strings.Join(names[:min(len(names), 20)], ", ")
	if configured != "" {
		if slices.Contains(names, configured) {
			return configured, nil
		}
		return "", problem.New(forge.CodeNoBranch, exist, "%s has no branch %q", r.path, configured)
	}
	head, err := l.git.Run(ctx, r.gitDir, nil, "symbolic-ref", "--quiet", "HEAD")
	if err != nil && problem.ExitCode(err) != 1 {
		return "", fmt.Errorf("read HEAD of %s: %w", r.path, err)
	}
	on := strings.TrimPrefix(strings.TrimSpace(string(head)), "refs/heads/")
	for _, name := range []string{on, "main", "master"} {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	return "", problem.New(forge.CodeNoBranch, "name the base branch; "+exist, "%s has no obvious base branch", r.path)
}

// head is the commit of a branch.
func (l *Local) head(ctx context.Context, r *repository, branch string) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", "refs/heads/"+branch+"^{commit}")
	if problem.ExitCode(err) == 1 {
		return "", problem.New(forge.CodeNoBranch, "", "%s has no branch %q", r.path, branch)
	}
	if err != nil {
		return "", fmt.Errorf("read branch %s of %s: %w", branch, r.path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// target is the branch that moves when a landing on base does: base may be a second name of it, a symbolic ref.
func (l *Local) target(ctx context.Context, r *repository, base string) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "symbolic-ref", "--quiet", "refs/heads/"+base)
	if problem.ExitCode(err) == 1 {
		return base, nil
	}
	if err != nil {
		return "", fmt.Errorf("find what branch %s of %s is: %w", base, r.path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "refs/heads/"), nil
}

// around is the branch that moves when a landing on base does, and the checkouts that can be looked at: all of those that
// have to follow.
func (l *Local) around(ctx context.Context, r *repository, base string) (target string, all []checkout.Checkout, err error) {
	if all, err = l.checkouts.Of(ctx, r.path, r.gitDir); err != nil {
		return "", nil, err
	}
	if target, err = l.target(ctx, r, base); err != nil {
		return "", nil, err
	}
	for _, c := range checkout.Having(all, target) {
		if c.Away != nil {
			return "", nil, problem.New(forge.CodeAway, "bring it back, or remove it with git worktree remove",
				"%s has %s checked out and can't be reached: %v", c.WorkTree, target, c.Away)
		}
	}
	return target, slices.DeleteFunc(all, func(c checkout.Checkout) bool { return c.Away != nil }), nil
}

// mainRepository tells, where it can be told, what a linked work tree belongs to.
func mainRepository(dotGit string) string {
	if path := gitdir.Main(dotGit); path != "" {
		return ": " + path
	}
	return ""
}
