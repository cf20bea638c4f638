package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"orch/internal/git"
	"orch/internal/git/worktree"
	"orch/internal/lfs"
)

// Head is the commit of the workspace's branch, imported into the mirror as refs/heads/<branch>. When the branch
// doesn't have the agent's work a *Error says what happened instead.
func (w *Workspace) Head(ctx context.Context) (string, error) {
	head, err := w.importHead(ctx)
	if err != nil {
		return "", fmt.Errorf("read head of workspace %s: %w", w.spec.Branch, err)
	}
	return head, nil
}

func (w *Workspace) importHead(ctx context.Context) (string, error) {
	v, err := worktree.Open(ctx, w.mirror, w.spec.Dir)
	if err != nil {
		return "", err
	}
	defer v.Close()
	head, ok := v.Refs[w.branchRef()]
	if !ok {
		return "", w.branchDeleted()
	}
	if err := w.checkHead(ctx, v, head); err != nil {
		return "", err
	}
	known, err := w.mirror.Ref(ctx, w.branchRef())
	if err != nil && !errors.Is(err, git.ErrNoRef) || known == head {
		return known, err
	}
	if err := w.take(ctx, v, head); err != nil {
		return "", err
	}
	return head, w.mirror.SetRef(ctx, w.branchRef(), head, "")
}

// take imports a commit, and with it the contents of large files which git-lfs keeps beside the repository: where the
// commit goes, they have to go too.
func (w *Workspace) take(ctx context.Context, v *worktree.View, id string) error {
	if err := v.Import(ctx, id); err != nil {
		return err
	}
	from := lfs.Of(filepath.Join(w.spec.Dir, ".git"))
	if !from.Exists() {
		return nil
	}
	pointers, err := w.mirror.Pointers(ctx, id, w.start)
	if err != nil {
		return err
	}
	missing, err := lfs.Of(w.mirror.Dir()).Carry(ctx, from, pointers)
	for _, p := range missing {
		w.mirror.Git().Logger().WarnContext(ctx, "an LFS object of a workspace isn't there",
			slog.String("branch", w.spec.Branch), slog.String("oid", p.OID), slog.Int64("size", p.Size))
	}
	return err
}

// checkHead compares the branch with where the workspace's HEAD is and where the branch started.
func (w *Workspace) checkHead(ctx context.Context, v *worktree.View, head string) error {
	if err := w.checkGrown(ctx, v, head); err != nil || v.Head == head {
		return err
	}
	where := "a detached HEAD"
	if v.On != "" {
		where = "the branch " + strings.TrimPrefix(v.On, "refs/heads/")
	}
	if v.Head == "" {
		return &Error{Problem: worktree.ProblemOtherBranch, Detail: "the workspace is on " + where + ", which has no commit"}
	}
	contained, err := git.IsAncestor(ctx, w.mirror.Git(), v.Dir, v.Head, head)
	if err != nil {
		return worktree.Corrupt("the workspace's HEAD can't be read", err)
	}
	if !contained {
		return &Error{
			Problem: worktree.ProblemOtherBranch,
			Detail: fmt.Sprintf("the workspace is on %s with commits, up to %.12s, that the branch %s doesn't have",
				where, v.Head, w.spec.Branch),
		}
	}
	return nil
}

// checkGrown says whether the branch, at head, still builds on where it started.
func (w *Workspace) checkGrown(ctx context.Context, v *worktree.View, head string) error {
	if head == w.start {
		return nil
	}
	grown, err := git.IsAncestor(ctx, w.mirror.Git(), v.Dir, w.start, head)
	if err != nil {
		return worktree.Corrupt("the branch's history can't be read", err)
	}
	if !grown {
		return &Error{
			Problem: worktree.ProblemRewritten,
			Detail: fmt.Sprintf("the branch %s, now at %.12s, no longer builds on the commit %.12s it started from",
				w.spec.Branch, head, w.start),
		}
	}
	return nil
}

// base is the commit, imported, to compare the work tree with: what is checked out, or else the branch as it is known.
func (w *Workspace) base(ctx context.Context, v *worktree.View) (string, error) {
	if v != nil && v.Head == w.start {
		return w.start, nil
	}
	known, err := w.resume(ctx)
	if err != nil || v == nil || v.Head == "" || v.Head == known {
		return known, err
	}
	return v.Head, v.Import(ctx, v.Head)
}
