package git

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"orch/internal/git/gitcmd"
)

// Absent as the old value of SetRef means that the ref must not exist yet.
const Absent = "0000000000000000000000000000000000000000"

// Base is the commit of a branch of the real repository, as of the last Fetch. ErrNoRef when it has no such branch.
func (m *Mirror) Base(ctx context.Context, branch string) (string, error) {
	return m.Ref(ctx, "refs/remotes/origin/"+branch)
}

// ForkPoint is the newest commit in head's history that a branch of the real repository was at when it was fetched, then or now;
// "" when that isn't known. One that isn't in the branch's history any more was taken back.
func (m *Mirror) ForkPoint(ctx context.Context, branch, head string) (string, error) {
	id, err := m.readLine(ctx, "merge-base", "--fork-point", "refs/remotes/origin/"+branch, head)
	if gitcmd.ExitCode(err) == 1 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find where %.12s left %s: %w", head, branch, err)
	}
	return id, nil
}

// Ref is the commit that a full ref name points at. ErrNoRef when there is none.
func (m *Mirror) Ref(ctx context.Context, ref string) (string, error) {
	if !strings.HasPrefix(ref, "refs/") {
		return "", fmt.Errorf("read ref %q: %w", ref, ErrNoRef)
	}
	return m.Resolve(ctx, ref)
}

// Offered is the head of a task that is to land, as the real repository had it at the last Fetch. ErrNoRef when it has none.
func (m *Mirror) Offered(ctx context.Context, key string) (string, error) {
	return m.Ref(ctx, OfferedPrefix+"head/"+key)
}

// Resolve is the id of the commit that rev, a full ref name or a full commit id, means. ErrNoRef when there is none.
func (m *Mirror) Resolve(ctx context.Context, rev string) (string, error) {
	if !strings.HasPrefix(rev, "refs/") && !gitcmd.IsID(rev) {
		return "", fmt.Errorf("resolve %q: %w", rev, ErrNoRef)
	}
	id, err := m.readLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	switch gitcmd.ExitCode(err) {
	case 1:
		return "", fmt.Errorf("resolve %q: %w", rev, ErrNoRef)
	case 128: // an id that isn't there, or isn't a commit's
		return "", fmt.Errorf("resolve %q: %w: %w", rev, ErrNoRef, err)
	}
	if err != nil {
		return "", fmt.Errorf("resolve %q: %w", rev, err)
	}
	return id, nil
}

// SetRef points a full ref name at a commit. With old it only does so when the ref is at old (Absent: when it doesn't
// exist) and otherwise returns ErrRefMoved; an empty old is no condition.
func (m *Mirror) SetRef(ctx context.Context, ref, to, old string) error {
	return m.updateRef(ctx, "set", ref, to, old)
}

// DeleteRef deletes a ref, with old only when it is there. A ref that doesn't exist is no error.
func (m *Mirror) DeleteRef(ctx context.Context, ref, old string) error {
	if _, err := m.Ref(ctx, ref); err != nil {
		return ignore(err, ErrNoRef)
	}
	return m.updateRef(ctx, "delete", ref, "", old)
}

func (m *Mirror) updateRef(ctx context.Context, verb, ref, to, old string) error {
	if !strings.HasPrefix(ref, "refs/") || to != "" && !gitcmd.IsID(to) || old != "" && !gitcmd.IsID(old) {
		return fmt.Errorf("%s ref %q: not a full name with full ids", verb, ref)
	}
	if old == Absent && len(to) > len(old) {
		old = strings.Repeat("0", len(to))
	}
	args := []string{"update-ref", "--no-deref"}
	if to == "" {
		args = append(args, "-d", ref)
	} else {
		args = append(args, ref, to)
	}
	if old != "" {
		args = append(args, old)
	}
	err := m.write(ctx, gitcmd.Call{Args: args})
	if err == nil {
		return nil
	}
	if now, e := m.Ref(ctx, ref); old != "" && (e == nil && now != old || e != nil && strings.Trim(old, "0") != "") {
		return fmt.Errorf("%s ref %s: %w", verb, ref, ErrRefMoved)
	}
	return fmt.Errorf("%s ref %s: %w", verb, ref, err)
}

// IsAncestor says whether a is an ancestor of b, or b itself.
func (m *Mirror) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	return IsAncestor(ctx, m.git, m.dir, a, b)
}

// IsAncestor is Mirror.IsAncestor in any git directory. It keeps git's three answers apart: yes, no, and don't know.
func IsAncestor(ctx context.Context, g *gitcmd.Git, gitDir, a, b string) (bool, error) {
	_, err := g.Run(ctx, gitDir, nil, "merge-base", "--is-ancestor", a, b)
	if gitcmd.ExitCode(err) == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether %.12s is an ancestor of %.12s: %w", a, b, err)
	}
	return true, nil
}

// Tree is the tree of a commit.
func (m *Mirror) Tree(ctx context.Context, commit string) (string, error) {
	tree, err := m.readLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
	if err != nil {
		return "", fmt.Errorf("read tree of %.12s: %w", commit, err)
	}
	return tree, nil
}

// Log has the commits that are in head's history but not in base's, the oldest first.
func (m *Mirror) Log(ctx context.Context, base, head string) ([]Commit, error) {
	raws, err := m.revList(ctx, base, head)
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	log := make([]Commit, len(raws))
	for i, raw := range raws {
		log[i] = raw.commit()
	}
	return log, nil
}

// ChangedPaths has the paths that head changed since it left base, sorted.
func (m *Mirror) ChangedPaths(ctx context.Context, base, head string) ([]string, error) {
	fork, err := m.mergeBase(ctx, base, head)
	if err != nil {
		return nil, fmt.Errorf("list changed paths: %w", err)
	}
	out, err := m.read(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", fork, head)
	if err != nil {
		return nil, fmt.Errorf("list changed paths: %w", err)
	}
	paths := gitcmd.SplitNUL(out)
	slices.Sort(paths)
	return paths, nil
}

// mergeBase is a best common ancestor; ErrUnrelated when there is none.
func (m *Mirror) mergeBase(ctx context.Context, a, b string) (string, error) {
	id, err := m.readLine(ctx, "merge-base", a, b)
	if gitcmd.ExitCode(err) == 1 {
		return "", ErrUnrelated
	}
	return id, err
}
