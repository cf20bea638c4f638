package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"orch/internal/forge"
)

// repository is a git repository on this machine.
type repository struct {
	path   string // as configured, made absolute
	gitDir string
}

// checkout is a work tree of a repository, its main one or a linked one.
type checkout struct {
	gitDir, workTree string
	branch           string // full name; "" when HEAD is detached
	away             error  // why it can't be looked at: a linked one may be locked because its disk isn't there
}

// open finds the repository at a location. Only its top is accepted: a landing must never hit a repository that
// somebody didn't mean.
func (l *Local) open(location string) (*repository, error) {
	path, err := filepath.Abs(location)
	if err != nil {
		return nil, fmt.Errorf("find repository %s: %w", location, err)
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, problem(forge.CodeMissing, "give the path of a git repository on this machine", "there is no directory %s", path)
	}
	dotGit := filepath.Join(path, ".git")
	info, err := os.Stat(dotGit)
	switch {
	case err == nil && info.IsDir() && isGitDir(dotGit):
		return &repository{path: path, gitDir: dotGit}, nil
	case err == nil && info.Mode().IsRegular():
		return nil, problem(forge.CodeLinkedWorktree, "give the repository that it belongs to"+mainRepository(dotGit),
			"%s is a linked work tree or a submodule", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("find repository %s: %w", path, err)
	case isGitDir(path) && filepath.Base(path) == ".git":
		return nil, problem(forge.CodeNotToplevel, "give "+filepath.Dir(path), "%s is the inside of a repository", path)
	case isGitDir(path):
		return &repository{path: path, gitDir: path}, nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if isGitDir(filepath.Join(dir, ".git")) || isGitDir(dir) {
			return nil, problem(forge.CodeNotToplevel, "give "+dir, "%s is a directory within the repository %s", path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil, problem(forge.CodeNotRepository, "run git init and commit there, or give another path", "%s is not a git repository", path)
		}
	}
}

// mainRepository tells, where it can be told, what a linked work tree belongs to.
func mainRepository(dotGit string) string {
	content, err := readFile(dotGit)
	if err != nil {
		return ""
	}
	gitDir := strings.TrimSpace(strings.TrimPrefix(string(content), "gitdir:"))
	common, _, linked := strings.Cut(gitDir, "/worktrees/")
	if !linked {
		return ""
	}
	return ": " + strings.TrimSuffix(common, "/.git")
}

func isGitDir(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// readFile reads a file, and only a file: a pipe in its place would never end.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no file", path))
	}
	return io.ReadAll(file)
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
		return "", problem(forge.CodeNoCommits, "make a first commit on the branch that tasks should land on", "%s has no commits yet", r.path)
	}
	exist := "branches there: " + strings.Join(names[:min(len(names), 20)], ", ")
	if configured != "" {
		if slices.Contains(names, configured) {
			return configured, nil
		}
		return "", problem(forge.CodeNoBranch, exist, "%s has no branch %q", r.path, configured)
	}
	head, err := l.git.Run(ctx, r.gitDir, nil, "symbolic-ref", "--quiet", "HEAD")
	if err != nil && exitCode(err) != 1 {
		return "", fmt.Errorf("read HEAD of %s: %w", r.path, err)
	}
	on := strings.TrimPrefix(strings.TrimSpace(string(head)), "refs/heads/")
	for _, name := range []string{on, "main", "master"} {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	return "", problem(forge.CodeNoBranch, "name the base branch; "+exist, "%s has no obvious base branch", r.path)
}

// head is the commit of a branch.
func (l *Local) head(ctx context.Context, r *repository, branch string) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", "refs/heads/"+branch+"^{commit}")
	if exitCode(err) == 1 {
		return "", problem(forge.CodeNoBranch, "", "%s has no branch %q", r.path, branch)
	}
	if err != nil {
		return "", fmt.Errorf("read branch %s of %s: %w", branch, r.path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// checkouts has every work tree of the repository that is there.
func (l *Local) checkouts(ctx context.Context, r *repository) ([]checkout, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, fmt.Errorf("list work trees of %s: %w", r.path, err)
	}
	var found []checkout
	for i, record := range strings.Split(strings.TrimSuffix(string(out), "\x00\x00"), "\x00\x00") {
		c, usable := checkout{}, true
		for field := range strings.SplitSeq(record, "\x00") {
			key, value, _ := strings.Cut(field, " ")
			switch key {
			case "worktree":
				c.workTree = value
			case "branch":
				c.branch = value
			case "bare", "prunable":
				usable = false
			}
		}
		if !usable {
			continue
		}
		if i == 0 { // the main one; git's list doesn't know core.worktree
			c.gitDir = r.gitDir
			c.workTree, err = l.mainWorkTree(ctx, r)
		} else {
			c.gitDir, c.away = linkedGitDir(c.workTree)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// mainWorkTree is where the main work tree is: core.worktree may put it anywhere.
func (l *Local) mainWorkTree(ctx context.Context, r *repository) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "config", "--type=path", "--get", "core.worktree")
	if exitCode(err) == 1 {
		return r.path, nil
	}
	if err != nil {
		return "", fmt.Errorf("find the work tree of %s: %w", r.path, err)
	}
	path := strings.TrimSpace(string(out))
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.gitDir, path)
	}
	return path, nil
}

func linkedGitDir(workTree string) (string, error) {
	content, err := readFile(filepath.Join(workTree, ".git"))
	if err != nil {
		return "", fmt.Errorf("read linked work tree: %w", err)
	}
	gitDir := strings.TrimSpace(strings.TrimPrefix(string(content), "gitdir:"))
	if !filepath.IsAbs(gitDir) {
		gitDir = filepath.Join(workTree, gitDir)
	}
	return gitDir, nil
}

// target is the branch that moves when a landing on base does: base may be a second name of it, a symbolic ref.
func (l *Local) target(ctx context.Context, r *repository, base string) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "symbolic-ref", "--quiet", "refs/heads/"+base)
	if exitCode(err) == 1 {
		return base, nil
	}
	if err != nil {
		return "", fmt.Errorf("find what branch %s of %s is: %w", base, r.path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "refs/heads/"), nil
}

// commonDir is the git directory of the repository that a work tree's own git directory belongs to.
func commonDir(gitDir string) string {
	content, err := readFile(filepath.Join(gitDir, "commondir"))
	if err != nil {
		return gitDir
	}
	common := strings.TrimSpace(string(content))
	if !filepath.IsAbs(common) {
		common = filepath.Join(gitDir, common)
	}
	return common
}

// around is the branch that moves when a landing on base does, and the checkouts that can be looked at: all of those that
// have to follow.
func (l *Local) around(ctx context.Context, r *repository, base string) (target string, all []checkout, err error) {
	if all, err = l.checkouts(ctx, r); err != nil {
		return "", nil, err
	}
	if target, err = l.target(ctx, r, base); err != nil {
		return "", nil, err
	}
	for _, c := range having(all, target) {
		if c.away != nil {
			return "", nil, problem(forge.CodeAway, "bring it back, or remove it with git worktree remove",
				"%s has %s checked out and can't be reached: %v", c.workTree, target, c.away)
		}
	}
	return target, slices.DeleteFunc(all, func(c checkout) bool { return c.away != nil }), nil
}

// having keeps the checkouts that have a branch checked out.
func having(all []checkout, branch string) []checkout {
	return slices.DeleteFunc(slices.Clone(all), func(c checkout) bool { return c.branch != "refs/heads/"+branch })
}
