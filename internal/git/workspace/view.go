package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

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

// view is a git directory of orch's own through which it reads a workspace's: objects and refs are the workspace's,
// the configuration is not.
type view struct {
	mirror *git.Mirror
	dir    string
	refs   map[string]string // ref → id
	head   string            // commit that is checked out; "" when there is none yet
	on     string            // ref that HEAD is on; "" when detached
}

func (v *view) close() { _ = os.RemoveAll(v.dir) }

// openView opens a view of the repository in the directory work; problems with it are *Error.
func openView(ctx context.Context, m *git.Mirror, work string) (*view, error) {
	if err := checkShape(work, m.Objects()); err != nil {
		return nil, err
	}
	gitDir := filepath.Join(work, ".git")
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
	v := &view{mirror: m, dir: dir, refs: map[string]string{}}
	if err := v.fill(ctx, gitDir, strings.TrimSpace(string(format)), strings.TrimSpace(head)); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (v *view) fill(ctx context.Context, gitDir, format, head string) error {
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
		if err := os.WriteFile(filepath.Join(v.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{"objects", "refs", "packed-refs"} {
		if info, err := os.Lstat(filepath.Join(gitDir, name)); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		if err := os.Symlink(filepath.Join(gitDir, name), filepath.Join(v.dir, name)); err != nil {
			return err
		}
	}
	out, err := v.mirror.Git().Run(ctx, v.dir, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return corrupt("the workspace's branches can't be read", err)
	}
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		v.refs[ref] = id
	}
	if symbolic {
		v.on, v.head = on, v.refs[on]
	} else {
		v.head = head
	}
	return nil
}

// tips are the commits that the workspace's branches, its stash and its HEAD are at; HEAD's comes first.
func (v *view) tips() []string {
	var tips []string
	if v.head != "" {
		tips = append(tips, v.head)
	}
	for _, ref := range slices.Sorted(maps.Keys(v.refs)) {
		if (strings.HasPrefix(ref, "refs/heads/") || ref == "refs/stash") && !slices.Contains(tips, v.refs[ref]) {
			tips = append(tips, v.refs[ref])
		}
	}
	return tips
}

// checkedOut is the commit that HEAD is at, if any.
func (v *view) checkedOut() []string {
	if v.head == "" {
		return nil
	}
	return []string{v.head}
}

// importCommits copies commits, with all that they need, into the mirror. What comes in is checked.
func (v *view) importCommits(ctx context.Context, ids ...string) error {
	return corrupt("the workspace's commits can't be taken over", v.mirror.Import(ctx, v.dir, ids...))
}

// corrupt makes git's refusal of what is in a workspace a *Error. A git that was stopped, or that found the disk full, says
// nothing about the workspace.
func corrupt(detail string, err error) error {
	if ge, ok := errors.AsType[*gitcmd.Error](err); ok && ge.Code > 0 && !diskFull(ge) {
		return &Error{Problem: ProblemCorrupt, Detail: detail, Err: err}
	}
	return err
}

// diskFull says whether git had no room to write.
func diskFull(e *gitcmd.Error) bool {
	return errors.Is(e, syscall.ENOSPC) || strings.Contains(e.Stderr, "No space left on device") || strings.Contains(e.Stderr, "Disk quota exceeded")
}

// checkShape refuses a .git that isn't what a clone has there: behind a link could be anybody's repository.
func checkShape(work, objects string) error {
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
	for _, name := range []string{"objects", "refs"} {
		info, err := os.Lstat(filepath.Join(work, ".git", name))
		if err != nil {
			return &Error{Problem: ProblemNoRepository, Detail: "the workspace's .git has lost its " + name}
		}
		if !info.IsDir() {
			return &Error{Problem: ProblemStrange, Detail: "the workspace's .git/" + name + " is no directory any more"}
		}
	}
	borrowed, err := readSmall(filepath.Join(work, ".git", "objects", "info", "alternates"))
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
