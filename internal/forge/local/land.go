package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
	"orch/internal/forge/local/problem"
)

// Land moves the target branch from Old to New by one compare-and-swap.
func (l *Local) Land(ctx context.Context, repo forge.Repo, landing forge.Landing) (forge.LandResult, error) {
	certain := forge.LandResult{Certain: true} // all that could move the target is processes that have ended
	r, err := l.openOwn(repo.Location)
	if err != nil {
		return certain, err
	}
	result, err := l.land(ctx, r, landing)
	if err != nil {
		return certain, fmt.Errorf("land %.12s on %s: %w", landing.New, landing.Base, err)
	}
	result.Certain = true
	return result, nil
}

func (l *Local) land(ctx context.Context, r *repository, landing forge.Landing) (forge.LandResult, error) {
	target, all, err := l.around(ctx, r, landing.Base)
	if err != nil {
		return forge.LandResult{}, err
	}
	with := checkout.Having(all, target)
	var result forge.LandResult
	if len(with) > 0 {
		result.CheckedOut = with[0].WorkTree
	}
	now, err := l.head(ctx, r, landing.Base)
	if err != nil {
		return result, err
	}
	if now != landing.Old {
		return l.already(ctx, r, landing, result)
	}
	bound, err := l.bonds(ctx, r, landing)
	if err != nil {
		return result, err
	}
	if err := l.ready(ctx, r, all, target); err != nil {
		return result, err
	}
	l.at(pointChecked)
	if err := l.bring(ctx, r, landing); err != nil {
		return result, err
	}
	l.at(pointCopied)
	for _, c := range with {
		if err := l.checkouts.CanFollow(ctx, c, landing.Old, landing.New); err != nil {
			return result, err
		}
	}
	if err := l.swap(ctx, r, landing, bound); err != nil {
		return l.afterFailure(ctx, r, landing, result, err)
	}
	l.at(pointSwapped)
	return result, nil
}

// bring copies what is to land into the repository, large files first. A compare-and-swap would permit a rewind: so it
// must build on what it replaces.
func (l *Local) bring(ctx context.Context, r *repository, landing forge.Landing) error {
	if err := l.carry(ctx, r, landing.Mirror, landing.New); err != nil {
		return err
	}
	if err := l.fetch(ctx, r, landing.Mirror, landing.New); err != nil {
		return err
	}
	descends, err := l.isAncestor(ctx, r, landing.Old, landing.New)
	if err == nil && !descends {
		err = problem.New(forge.CodeRewind, "", "%.12s does not build on %.12s", landing.New, landing.Old)
	}
	return err
}

// already tells a landing that was made before from a base that moved.
func (l *Local) already(ctx context.Context, r *repository, landing forge.Landing, result forge.LandResult) (forge.LandResult, error) {
	landed, err := l.contains(ctx, r, landing.Base, landing.New)
	if err != nil {
		return result, err
	}
	if !landed {
		return result, forge.ErrBaseMoved
	}
	result.Already = true
	return result, nil
}

// afterFailure looks at what a failed swap left, since its answer is no proof of anything.
func (l *Local) afterFailure(ctx context.Context, r *repository, landing forge.Landing, result forge.LandResult, failed error) (forge.LandResult, error) {
	now, err := l.head(ctx, r, landing.Base)
	switch {
	case err != nil:
		return result, errors.Join(problem.Translate(failed), err)
	case now == landing.New:
		return result, nil
	case now != landing.Old:
		return l.already(ctx, r, landing, result)
	}
	if _, err := l.bonds(ctx, r, landing); err != nil {
		return result, err
	}
	return result, problem.Translate(failed)
}

// bonds has the refs that must not change until the target has moved, and where they are: ErrClaimed or ErrChanged when
// they have already.
func (l *Local) bonds(ctx context.Context, r *repository, landing forge.Landing) (map[string]string, error) {
	bound := map[string]string{}
	gate, c, err := l.claimed(ctx, r, landing)
	if err != nil {
		return nil, err
	}
	if gate != "" {
		bound[gate] = c.id
	}
	refs := slices.Sorted(maps.Keys(landing.Verify))
	for _, ref := range refs {
		if commit := landing.Verify[ref]; !strings.HasPrefix(ref, "refs/") || strings.ContainsAny(ref+commit, " \t\n\x00") || commit == "" {
			return nil, fmt.Errorf("verify %q: not a full name of a ref with a commit", ref)
		}
	}
	now, err := l.objectsAt(ctx, r, refs)
	if err != nil {
		return nil, err
	}
	for i, ref := range refs {
		if want := landing.Verify[ref]; now[i] != want {
			return nil, fmt.Errorf("%s is at %.12s, not at %.12s: %w", ref, now[i], want, forge.ErrChanged)
		}
		bound[ref] = now[i]
	}
	return bound, nil
}

// objectsAt has what each of the refs is at; "" where there is no such ref.
func (l *Local) objectsAt(ctx context.Context, r *repository, refs []string) ([]string, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	out, err := l.git.Run(ctx, r.gitDir, []byte(strings.Join(refs, "\n")+"\n"), "cat-file", "--batch-check=%(objectname)")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", strings.Join(refs, ", "), err)
	}
	ids := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(ids) != len(refs) {
		return nil, fmt.Errorf("read %s: unexpected %q", strings.Join(refs, ", "), out)
	}
	for i, id := range ids {
		if strings.HasSuffix(id, " missing") {
			ids[i] = ""
		}
	}
	return ids, nil
}

// swap is the compare-and-swap. What the landing is bound to is verified under the locks that it moves the target with.
func (l *Local) swap(ctx context.Context, r *repository, landing forge.Landing, bound map[string]string) error {
	var transaction strings.Builder
	transaction.WriteString("start\n")
	for _, ref := range slices.Sorted(maps.Keys(bound)) {
		fmt.Fprintf(&transaction, "verify %s %s\n", ref, bound[ref])
	}
	fmt.Fprintf(&transaction, "update refs/heads/%s %s %s\nprepare\ncommit\n", landing.Base, landing.New, landing.Old)
	message := "orch: land " + strings.Join(strings.Fields(landing.Key), " ")
	return l.write(ctx, r, []byte(transaction.String()), "update-ref", "-m", message, "--stdin")
}

// fetch brings what refspecs name from a mirror into the repository; a bare commit id brings objects and leaves no trace else.
func (l *Local) fetch(ctx context.Context, r *repository, mirror string, refspecs ...string) error {
	args := []string{
		"fetch", "-q", "--no-tags", "--no-prune", "--refmap=", "--no-write-fetch-head",
		"--no-auto-maintenance", "--no-recurse-submodules", "--no-show-forced-updates", "--", mirror,
	}
	if err := l.write(ctx, r, nil, append(args, refspecs...)...); err != nil {
		return fmt.Errorf("copy commits: %w", problem.Translate(err))
	}
	return nil
}

func (l *Local) isAncestor(ctx context.Context, r *repository, a, b string) (bool, error) {
	_, err := l.git.Run(ctx, r.gitDir, nil, "merge-base", "--is-ancestor", a, b)
	if problem.ExitCode(err) == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("compare %.12s with %.12s: %w", a, b, err)
	}
	return true, nil
}

// contains says whether commit is in a branch's history; one that the repository doesn't even have is not.
func (l *Local) contains(ctx context.Context, r *repository, branch, commit string) (bool, error) {
	if _, err := l.git.Run(ctx, r.gitDir, nil, "cat-file", "-e", commit+"^{commit}"); err != nil {
		if problem.ExitCode(err) > 0 {
			return false, nil
		}
		return false, fmt.Errorf("look for %.12s: %w", commit, err)
	}
	return l.isAncestor(ctx, r, commit, "refs/heads/"+branch)
}

// Landed says whether commit is in the history of target.
func (l *Local) Landed(ctx context.Context, repo forge.Repo, target, commit string) (bool, error) {
	r, err := l.open(repo.Location)
	if err != nil {
		return false, err
	}
	if _, err := l.head(ctx, r, target); err != nil {
		return false, err
	}
	return l.contains(ctx, r, target, commit)
}
