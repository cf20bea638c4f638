package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"orch/internal/git"
	"orch/internal/git/worktree"
)

// Spec describes the workspace of one task.
type Spec struct {
	Dir    string       // absolute; nothing else may live there
	Branch string       // short name: orch/<task key>
	Start  string       // commit that the branch starts from, when it is made for the first time
	Author git.Identity // who commits there
}

// Workspace is the clone in which an agent works. Its configuration, hooks and refs are the agent's; orch never runs
// git with them.
type Workspace struct {
	mirror *git.Mirror
	spec   Spec
	start  string
}

// Open opens the workspace at spec.Dir, or makes it: at the mirror's refs/heads/<branch> when work of
// that branch was imported before, else at spec.Start. The start that counts is the one it was first made with.
// What is there but can't be used any more is salvaged to the next free refs/orch/salvage/<key>/<n>, and made anew.
func Open(ctx context.Context, m *git.Mirror, spec Spec) (*Workspace, error) {
	w := &Workspace{mirror: m, spec: spec}
	if err := w.open(ctx); err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", spec.Branch, err)
	}
	return w, nil
}

// At gives access to the workspace at spec.Dir as it is, in whatever state, and changes nothing there: what is wrong with
// it is a *Error of the methods that read it.
func At(ctx context.Context, m *git.Mirror, spec Spec) (*Workspace, error) {
	w := &Workspace{mirror: m, spec: spec}
	if err := w.settleStart(ctx); err != nil {
		return nil, fmt.Errorf("look at workspace %s: %w", spec.Branch, err)
	}
	return w, nil
}

// Error says what happened to a workspace so that its branch can't be taken as it is.
type Error = worktree.Error

// Tidy is worktree.Tidy for the workspace. What can be kept of it is more afterwards.
func (w *Workspace) Tidy(ctx context.Context) error {
	if err := worktree.Tidy(ctx, w.mirror, w.spec.Dir); err != nil {
		return fmt.Errorf("tidy workspace %s: %w", w.spec.Branch, err)
	}
	return nil
}

// Dir is where the workspace is.
func (w *Workspace) Dir() string { return w.spec.Dir }

// Start is the commit that the branch started from.
func (w *Workspace) Start() string { return w.start }

func (w *Workspace) open(ctx context.Context) error {
	if !filepath.IsAbs(w.spec.Dir) {
		return fmt.Errorf("%s: the path must be absolute", w.spec.Dir)
	}
	if _, err := w.mirror.Git().Run(ctx, "", nil, "check-ref-format", "--branch", w.spec.Branch); err != nil {
		return err
	}
	if err := w.settleStart(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.spec.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0:
		return w.make(ctx)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrPermission):
		if err := w.Tidy(ctx); err != nil { // and go on with what is there then
			return err
		}
	case err != nil:
		return err
	}
	err = w.usable(ctx)
	if broken, ok := errors.AsType[*Error](err); ok {
		w.mirror.Git().Logger().WarnContext(ctx, "workspace can't be used and is made anew",
			slog.String("branch", w.spec.Branch), slog.String("dir", w.spec.Dir),
			slog.String("problem", string(broken.Problem)), slog.Any("error", broken))
		return w.remake(ctx, "")
	}
	return err
}

// settleStart remembers the start in the mirror, out of the agent's reach: a later round may be asked for with a newer base.
func (w *Workspace) settleStart(ctx context.Context) error {
	start, err := w.mirror.Ref(ctx, w.startRef())
	if errors.Is(err, git.ErrNoRef) {
		if start, err = w.mirror.Resolve(ctx, w.spec.Start); err == nil {
			err = w.mirror.SetRef(ctx, w.startRef(), start, "")
		}
	}
	w.start = start
	return err
}

// usable says whether what is there is a workspace that an agent can go on in.
func (w *Workspace) usable(ctx context.Context) error {
	v, err := worktree.Open(ctx, w.mirror, w.spec.Dir)
	if err != nil {
		return err
	}
	defer v.Close()
	head, ok := v.Refs[w.branchRef()]
	if !ok {
		return w.branchDeleted()
	}
	if _, err := v.Run(ctx, "rev-parse", "--verify", "--quiet", head+"^{tree}"); err != nil {
		return worktree.Corrupt("the branch's commit can't be read", err)
	}
	return nil
}

// make builds the workspace beside its place and moves it there when it is whole.
func (w *Workspace) make(ctx context.Context) error {
	at, err := w.resume(ctx)
	if err != nil {
		return err
	}
	temp := git.Hidden(w.spec.Dir, "new")
	if err := git.RemoveAll(temp); err != nil { // nobody has worked in it yet
		return err
	}
	s := git.Skeleton{
		Head: "ref: " + w.branchRef(), Refs: map[string]string{w.branchRef(): at},
		Config: "[user]\n\tname = " + configValue(w.spec.Author.Name) + "\n\temail = " + configValue(w.spec.Author.Email) + "\n",
	}
	if err := w.mirror.Build(ctx, temp, at, s); err != nil {
		return fmt.Errorf("make it: %w", err)
	}
	made := &Workspace{mirror: w.mirror, spec: w.spec, start: w.start}
	made.spec.Dir = temp
	if err := made.usable(ctx); err != nil {
		return fmt.Errorf("verify it: %w", err)
	}
	if err := os.Remove(w.spec.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // empty
		return err
	}
	return os.Rename(temp, w.spec.Dir)
}

// resume is the commit that a new workspace starts at.
func (w *Workspace) resume(ctx context.Context) (string, error) {
	head, err := w.mirror.Ref(ctx, w.branchRef())
	if errors.Is(err, git.ErrNoRef) {
		return w.start, nil
	}
	if err != nil {
		return "", err
	}
	grown, err := w.mirror.IsAncestor(ctx, w.start, head)
	if err != nil || !grown {
		return w.start, err
	}
	return head, nil
}

// remake salvages what is there (to ref, or the next free one), then makes the workspace anew.
func (w *Workspace) remake(ctx context.Context, ref string) error {
	if ref == "" {
		var err error
		if ref, err = NextSalvageRef(ctx, w.mirror, strings.TrimPrefix(w.spec.Branch, "orch/")); err != nil {
			return err
		}
	}
	if _, err := w.Salvage(ctx, ref); err != nil {
		return err
	}
	if err := w.setAside(); err != nil {
		return err
	}
	if err := w.make(ctx); err != nil {
		return err
	}
	return git.RemoveAll(git.Hidden(w.spec.Dir, "old"))
}

// Continue makes the workspace one in which an agent can go on where it was interrupted: nothing in it changes, but that
// what a killed git left in the way of the next one goes. Its branch is imported as by Head, whose errors it has.
func (w *Workspace) Continue(ctx context.Context) error {
	if err := w.Tidy(ctx); err != nil {
		return err
	}
	if _, err := w.Head(ctx); err != nil {
		return err
	}
	root, err := os.OpenRoot(w.spec.Dir)
	if err == nil {
		err = errors.Join(worktree.RemoveLocks(root), root.Close())
	}
	if err != nil {
		return fmt.Errorf("continue in workspace %s: %w", w.spec.Branch, err)
	}
	return nil
}

// Dirty has the paths that differ from the commit which is checked out, or are neither tracked nor ignored; sorted. A
// repository within whose own files do ends in a slash.
func (w *Workspace) Dirty(ctx context.Context) ([]string, error) {
	var dirty []string
	err := w.changes(ctx, func(s *worktree.Scan) error {
		dirty = s.Dirty()
		return nil
	})
	return dirty, err
}

// Clean says whether nothing but commits of branches would be lost with the workspace: nothing is dirty, and repositories
// within have no commits of their own.
func (w *Workspace) Clean(ctx context.Context) (bool, error) {
	clean := false
	err := w.changes(ctx, func(s *worktree.Scan) (err error) {
		clean, err = s.Clean(ctx)
		return err
	})
	return clean, err
}

// changes looks at how the work tree differs from what is checked out.
func (w *Workspace) changes(ctx context.Context, look func(*worktree.Scan) error) error {
	v, err := worktree.Open(ctx, w.mirror, w.spec.Dir)
	if err != nil {
		return fmt.Errorf("look for changes in workspace %s: %w", w.spec.Branch, err)
	}
	defer v.Close()
	base, err := w.base(ctx, v)
	if err != nil {
		return fmt.Errorf("look for changes in workspace %s: %w", w.spec.Branch, err)
	}
	if err := worktree.Unblocked(w.spec.Dir, "."); err != nil {
		return fmt.Errorf("look for changes in workspace %s: %w", w.spec.Branch, err)
	}
	s, err := worktree.Look(ctx, w.mirror, w.spec.Dir, base)
	if err == nil {
		defer s.Close()
		err = look(s)
	}
	if err != nil {
		return fmt.Errorf("look for changes in workspace %s: %w", w.spec.Branch, err)
	}
	return nil
}

// Remove removes the workspace of a branch at dir, in whatever state it is. Whoever calls it has salvaged what was in it;
// the branch in the mirror stays. The place is empty at once: whoever looks after a crash never takes a half for the
// whole. It may be repeated.
func Remove(ctx context.Context, m *git.Mirror, dir, branch string) error {
	w := &Workspace{mirror: m, spec: Spec{Dir: dir, Branch: branch}}
	if err := w.remove(ctx); err != nil {
		return fmt.Errorf("remove workspace %s: %w", branch, err)
	}
	return nil
}

func (w *Workspace) remove(ctx context.Context) error {
	if err := w.setAside(); err != nil {
		return err
	}
	for _, purpose := range []string{"old", "new", "file"} {
		if err := git.RemoveAll(git.Hidden(w.spec.Dir, purpose)); err != nil {
			return err
		}
	}
	return w.mirror.DeleteRef(ctx, w.startRef(), "")
}

// setAside takes the workspace from its place.
func (w *Workspace) setAside() error {
	aside := git.Hidden(w.spec.Dir, "old")
	if err := git.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(w.spec.Dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (w *Workspace) branchRef() string { return "refs/heads/" + w.spec.Branch }
func (w *Workspace) startRef() string  { return "refs/orch/start/" + w.spec.Branch }

func (w *Workspace) branchDeleted() error {
	return &Error{Problem: worktree.ProblemBranchDeleted, Detail: "the branch " + w.spec.Branch + " was deleted in the workspace"}
}

// configValue quotes s as the value of a configuration key.
func configValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}
