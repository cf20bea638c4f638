package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/problem"
	"orch/internal/lfs"
)

// salvages are the refs of which none ever takes another's place.
const salvages = "refs/orch/salvage/"

// Publish copies refs below refs/orch/, or branches below orch/, from a mirror: those that may take another's place by one
// fetch, each salvage by itself.
func (l *Local) Publish(ctx context.Context, repo forge.Repo, mirrorDir string, refs ...string) error {
	r, err := l.openFor(repo, refs)
	if err != nil {
		return err
	}
	var specs []string
	for _, ref := range refs {
		if err := l.carry(ctx, r, mirrorDir, ref); err != nil {
			return fmt.Errorf("publish %s: %w", ref, err)
		}
		if !strings.HasPrefix(ref, salvages) {
			specs = append(specs, "+"+ref+":"+ref)
		} else if err := l.publishOnce(ctx, r, mirrorDir, ref); err != nil {
			return fmt.Errorf("publish %s: %w", ref, err)
		}
	}
	if len(specs) == 0 {
		return nil
	}
	if err := l.fetch(ctx, r, mirrorDir, specs...); err != nil {
		return fmt.Errorf("publish %s: %w", strings.Join(refs, ", "), err)
	}
	return nil
}

// Unpublish removes refs that Publish made.
func (l *Local) Unpublish(ctx context.Context, repo forge.Repo, refs ...string) error {
	r, err := l.openFor(repo, refs)
	if err != nil || len(refs) == 0 {
		return err
	}
	deletes := "delete " + strings.Join(refs, "\ndelete ") + "\n"
	if err := l.write(ctx, r, []byte(deletes), "update-ref", "--no-deref", "--stdin"); err != nil {
		return fmt.Errorf("unpublish %s: %w", strings.Join(refs, ", "), problem.Translate(err))
	}
	return nil
}

// openFor is openOwn for writing refs that are orch's.
func (l *Local) openFor(repo forge.Repo, refs []string) (*repository, error) {
	for _, ref := range refs {
		below := func(prefix string) bool { return strings.HasPrefix(ref, prefix) }
		if !below("refs/orch/") && !below("refs/heads/orch/") || below(claimPrefix) || strings.ContainsAny(ref, " \t\n\x00") {
			return nil, problem.New(forge.CodeRefused, "", "orch publishes only below refs/orch/ and refs/heads/orch/, not %q", ref)
		}
	}
	return l.openOwn(repo.Location)
}

// publishOnce publishes a ref that isn't there yet, or adds to what is.
func (l *Local) publishOnce(ctx context.Context, r *repository, mirrorDir, ref string) error {
	out, err := l.git.Run(ctx, mirrorDir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return err
	}
	commit := strings.TrimSpace(string(out))
	if err := l.fetch(ctx, r, mirrorDir, commit); err != nil {
		return err
	}
	return l.add(ctx, r, ref, commit)
}

// Branch makes a new branch.
func (l *Local) Branch(ctx context.Context, repo forge.Repo, mirrorDir, commit, branch string) error {
	r, err := l.openOwn(repo.Location)
	if err != nil {
		return err
	}
	_, err = l.git.Run(ctx, "", nil, "check-ref-format", "refs/heads/"+branch)
	if err != nil || branch == "HEAD" || strings.HasPrefix(branch, "-") {
		return problem.New(forge.CodeRefused, "give another one", "%q is no name for a branch", branch)
	}
	if err := errors.Join(l.carry(ctx, r, mirrorDir, commit), l.fetch(ctx, r, mirrorDir, commit)); err != nil {
		return fmt.Errorf("make branch %s: %w", branch, err)
	}
	if err := l.create(ctx, r, "refs/heads/"+branch, commit); err != nil {
		return fmt.Errorf("make branch %s: %w", branch, err)
	}
	return nil
}

// carry brings the contents of large files, which git-lfs keeps beside a repository, from the mirror: those that the
// commit's history names and the repository's branches don't.
func (l *Local) carry(ctx context.Context, r *repository, mirrorDir, rev string) error {
	from := lfs.Of(mirrorDir)
	if !from.Exists() {
		return nil
	}
	objects, err := l.git.Run(ctx, mirrorDir, nil, "rev-list", "--objects", "--no-object-names",
		"--filter=blob:limit="+strconv.Itoa(lfs.MaxPointer+1), "--not", "--remotes=origin", "--not", "--end-of-options", rev)
	if err != nil {
		return fmt.Errorf("look for LFS pointers: %w", err)
	}
	out, err := l.git.Run(ctx, mirrorDir, objects, "cat-file", "--batch")
	if err != nil {
		return fmt.Errorf("read LFS pointers: %w", err)
	}
	_, err = lfs.Of(r.gitDir).Carry(ctx, from, lfs.Pointers(out)) // what nobody has here may be on a server
	return err
}

// create makes a ref that isn't there yet; one that is at commit is as good.
func (l *Local) create(ctx context.Context, r *repository, ref, commit string) error {
	failed := l.move(ctx, r, ref, commit, strings.Repeat("0", len(commit)))
	if failed == nil {
		return nil
	}
	now, err := l.commitAt(ctx, r, ref)
	switch {
	case err != nil:
		return err
	case now == commit:
		return nil
	case now != "" || strings.Contains(problem.Said(failed), "exists; cannot create"): // a/b, where a or a/b/c is one
		return forge.ErrRefTaken
	}
	return problem.Translate(failed)
}

// add makes a ref, or moves one along to what has all of it.
func (l *Local) add(ctx context.Context, r *repository, ref, commit string) error {
	now, err := l.commitAt(ctx, r, ref)
	if err != nil {
		return err
	}
	if now == "" {
		return l.create(ctx, r, ref, commit)
	}
	grown, err := l.isAncestor(ctx, r, now, commit)
	if err != nil {
		return err
	}
	if !grown {
		return forge.ErrRefTaken
	}
	return problem.Translate(l.move(ctx, r, ref, commit, now))
}

// commitAt is what a ref is at, or "".
func (l *Local) commitAt(ctx context.Context, r *repository, ref string) (string, error) {
	out, err := l.git.Run(ctx, r.gitDir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	if err != nil && problem.ExitCode(err) != 1 {
		return "", fmt.Errorf("read %s: %w", ref, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (l *Local) move(ctx context.Context, r *repository, ref, to, from string) error {
	return l.write(ctx, r, nil, "update-ref", "--no-deref", ref, to, from)
}
