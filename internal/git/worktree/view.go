package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// Problem says in one stable word what is wrong with a workspace.
type Problem string

// What agents do to their workspaces.
const (
	ProblemGone          Problem = "workspace_gone"
	ProblemNoRepository  Problem = "repository_removed"
	ProblemStrange       Problem = "repository_replaced"
	ProblemBranchDeleted Problem = "branch_deleted"
	ProblemOtherBranch   Problem = "work_on_another_branch"
	ProblemRewritten     Problem = "history_rewritten"
	ProblemCorrupt       Problem = "repository_corrupt"
)

// Error says what happened to a workspace so that its branch can't be taken as it is.
type Error struct {
	Problem Problem
	Detail  string // a sentence, for the agent and for people
	Err     error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

func (e *Error) Unwrap() error { return e.Err }

// View is a git directory of orch's own through which it reads a workspace's: objects and refs are the workspace's,
// the configuration is not.
type View struct {
	mirror *git.Mirror
	Dir    string
	Refs   map[string]string // ref → id
	Head   string            // commit that is checked out; "" when there is none yet
	On     string            // ref that HEAD is on; "" when detached
	linked []string          // commits that linked work trees have checked out without a branch
}

// Close removes the view; the repository stays.
func (v *View) Close() { _ = os.RemoveAll(v.Dir) }

// Open opens a view of the repository in the directory work; problems with it are *Error.
func Open(ctx context.Context, m *git.Mirror, work string) (*View, error) {
	if err := checkShape(work); err != nil {
		return nil, err
	}
	return openRepository(ctx, m, work, ".git")
}

// openRepository opens a view of the git directory at a path below the workspace work.
func openRepository(ctx context.Context, m *git.Mirror, work, at string) (*View, error) {
	gitDir := filepath.Join(work, at)
	if err := checkGitDir(gitDir, m.Objects()); err != nil {
		return nil, err
	}
	if err := Unblocked(work, filepath.Join(at, "refs"), filepath.Join(at, "objects")); err != nil {
		return nil, err
	}
	head, err := readSmall(filepath.Join(gitDir, "HEAD"))
	if err != nil {
		return nil, &Error{Problem: ProblemNoRepository, Detail: "the workspace's HEAD can't be read", Err: err}
	}
	format, err := m.Git().Run(ctx, m.Dir(), nil, "rev-parse", "--show-object-format")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(m.TempDir(), "view-")
	if err != nil {
		return nil, err
	}
	v := &View{mirror: m, Dir: dir, Refs: map[string]string{}}
	if err := v.fill(ctx, gitDir, strings.TrimSpace(string(format)), strings.TrimSpace(head)); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *View) fill(ctx context.Context, gitDir, format, head string) error {
	idLength := 40
	if format == "sha256" {
		idLength = 64
	}
	on, symbolic := strings.CutPrefix(head, "ref: ")
	if symbolic && !strings.HasPrefix(on, "refs/") || !symbolic && !gitcmd.IsID(head) {
		return &Error{Problem: ProblemCorrupt, Detail: "the workspace's HEAD is neither a branch nor a commit"}
	}
	own := map[string]string{"HEAD": head + "\n", "config": git.BaseConfig(idLength, true)}
	for name, content := range own {
		if err := os.WriteFile(filepath.Join(v.Dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{"objects", "refs", "packed-refs", "shallow"} {
		if info, err := os.Lstat(filepath.Join(gitDir, name)); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		if err := os.Symlink(filepath.Join(gitDir, name), filepath.Join(v.Dir, name)); err != nil {
			return err
		}
	}
	out, err := v.Run(ctx, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return Corrupt("the workspace's branches can't be read", err)
	}
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		v.Refs[ref] = id
	}
	if symbolic {
		v.On, v.Head = on, v.Refs[on]
	} else {
		v.Head = head
	}
	v.linked = linkedHeads(gitDir)
	return nil
}

// linkedHeads are the commits that work trees made by `git worktree` have checked out without a branch.
func linkedHeads(gitDir string) []string {
	entries, err := os.ReadDir(filepath.Join(gitDir, "worktrees"))
	if err != nil {
		return nil // as in most
	}
	var heads []string
	for _, e := range entries {
		if head, err := readSmall(filepath.Join(gitDir, "worktrees", e.Name(), "HEAD")); err == nil && gitcmd.IsID(strings.TrimSpace(head)) {
			heads = append(heads, strings.TrimSpace(head))
		}
	}
	return heads
}

// workTimeout bounds a git that reads what an agent wrote. Nothing that is as it should be takes that long.
const workTimeout = 5 * time.Minute

// Run runs git on the repository, for no longer than that may take.
func (v *View) Run(ctx context.Context, args ...string) ([]byte, error) {
	return v.mirror.Git().Do(ctx, gitcmd.Call{GitDir: v.Dir, Args: args, Timeout: workTimeout})
}

// Tips are the commits that the workspace's branches, its stash and its HEADs are at; HEAD's comes first.
func (v *View) Tips() []string {
	var tips []string
	if v.Head != "" {
		tips = append(tips, v.Head)
	}
	for _, ref := range slices.Sorted(maps.Keys(v.Refs)) {
		if (strings.HasPrefix(ref, "refs/heads/") || ref == "refs/stash") && !slices.Contains(tips, v.Refs[ref]) {
			tips = append(tips, v.Refs[ref])
		}
	}
	for _, head := range v.linked {
		if !slices.Contains(tips, head) {
			tips = append(tips, head)
		}
	}
	return tips
}

// CheckedOut is the commit that HEAD is at, if any.
func (v *View) CheckedOut() []string {
	if v.Head == "" {
		return nil
	}
	return []string{v.Head}
}

// Import copies commits, with all that they need, into the mirror. What comes in is checked.
func (v *View) Import(ctx context.Context, ids ...string) error {
	return Corrupt("the workspace's commits can't be taken over", v.mirror.Import(ctx, v.Dir, ids...))
}

// Corrupt makes git's refusal of what is in a workspace a *Error. A git that was stopped, or that found the disk full, says
// nothing about the workspace.
func Corrupt(detail string, err error) error {
	if ge, ok := errors.AsType[*gitcmd.Error](err); ok && ge.Code > 0 && !diskFull(ge) {
		return &Error{Problem: ProblemCorrupt, Detail: detail, Err: err}
	}
	return stuck(err)
}

// stuck makes a git that came to no end in a workspace a *Error.
func stuck(err error) error {
	if errors.Is(err, gitcmd.ErrTimeout) {
		return &Error{Problem: ProblemStrange, Detail: "git gets stuck in the workspace", Err: err}
	}
	return err
}

// diskFull says whether git had no room to write.
func diskFull(e *gitcmd.Error) bool {
	return errors.Is(e, syscall.ENOSPC) || strings.Contains(e.Stderr, "No space left on device") || strings.Contains(e.Stderr, "Disk quota exceeded")
}

// checkShape refuses a .git that isn't what a clone has there: behind a link could be anybody's repository.
func checkShape(work string) error {
	if info, err := os.Lstat(work); err != nil || !info.IsDir() {
		return &Error{Problem: ProblemGone, Detail: "the workspace is gone"}
	}
	info, err := os.Lstat(filepath.Join(work, ".git"))
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Problem: ProblemNoRepository, Detail: "the workspace's .git directory was removed"}
	}
	if err != nil || !info.IsDir() {
		return &Error{Problem: ProblemStrange, Detail: "the workspace's .git is no directory any more", Err: err}
	}
	return nil
}

// checkGitDir refuses a git directory that isn't whole, or that borrows objects from elsewhere than objects.
func checkGitDir(gitDir, objects string) error {
	for _, name := range []string{"objects", "refs"} {
		info, err := os.Lstat(filepath.Join(gitDir, name))
		if err != nil {
			return &Error{Problem: ProblemNoRepository, Detail: "the workspace's .git has lost its " + name}
		}
		if !info.IsDir() {
			return &Error{Problem: ProblemStrange, Detail: "the workspace's .git/" + name + " is no directory any more"}
		}
	}
	borrowed, err := readSmall(filepath.Join(gitDir, "objects", "info", "alternates"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{Problem: ProblemStrange, Detail: "what the workspace borrows objects from can't be read", Err: err}
	}
	if borrowed = strings.TrimSpace(borrowed); borrowed != "" && borrowed != objects {
		return &Error{Problem: ProblemStrange, Detail: "the workspace borrows objects from somewhere else"}
	}
	return nil
}

// readSmall reads a small regular file without following a link and without ever blocking on a pipe.
func readSmall(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", filepath.Base(path))
	}
	content, err := io.ReadAll(io.LimitReader(file, 4096))
	return string(content), err
}

// Unkept is a note about what is broken: its sentence, which is the same each time. What git said of it, which isn't, is logged.
func Unkept(ctx context.Context, m *git.Mirror, what string, broken *Error) string {
	m.Git().Logger().WarnContext(ctx, "not all of a workspace is kept", slog.String("what", what+broken.Detail), slog.Any("error", broken))
	return what + broken.Detail
}
