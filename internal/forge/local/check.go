package local

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
	"orch/internal/forge/local/gitdir"
	"orch/internal/forge/local/problem"
)

// Check says whether orch could land on the repository now.
func (l *Local) Check(ctx context.Context, repo forge.Repo) (forge.Checked, error) {
	r, err := l.openOwn(repo.Location)
	if err != nil {
		return forge.Checked{}, err
	}
	base, err := l.base(ctx, r, repo.Base)
	if err != nil {
		return forge.Checked{}, err
	}
	head, err := l.head(ctx, r, base)
	if err != nil {
		return forge.Checked{}, err
	}
	if err := l.whole(ctx, r, base); err != nil {
		return forge.Checked{}, err
	}
	target, all, err := l.around(ctx, r, base)
	if err != nil {
		return forge.Checked{}, err
	}
	checked := forge.Checked{Base: base, Head: head, Path: r.path}
	checked.Bare = !slices.ContainsFunc(all, func(c checkout.Checkout) bool { return c.GitDir == r.gitDir })
	if err := l.ready(ctx, r, all, target); err != nil {
		return forge.Checked{}, err
	}
	if with := checkout.Having(all, target); len(with) > 0 {
		checked.CheckedOut = with[0].WorkTree
	}
	return checked, nil
}

// whole refuses a branch whose history is cut off: it can't be fetched.
func (l *Local) whole(ctx context.Context, r *repository, branch string) error {
	cuts, err := gitdir.ReadFile(filepath.Join(r.gitDir, "shallow"))
	if err != nil {
		return nil // hardly any repository has that file
	}
	for cut := range strings.FieldsSeq(string(cuts)) {
		in, err := l.contains(ctx, r, branch, cut)
		if err != nil {
			return err
		}
		if in {
			return problem.New(forge.CodeShallow, "run git fetch --unshallow there", "%s is a shallow clone: the history of %s is cut off", r.path, branch)
		}
	}
	return nil
}

// ready refuses a landing on a branch while work trees couldn't follow it.
func (l *Local) ready(ctx context.Context, r *repository, all []checkout.Checkout, branch string) error {
	if err := l.ownCheckouts(r, all, branch); err != nil {
		return err
	}
	return l.checkouts.Ready(ctx, all, branch)
}
