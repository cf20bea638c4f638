package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"orch/internal/git/gitcmd"
)

// Replayed is the outcome of a replay.
type Replayed struct {
	Commit, Tree string // what would land; the base and its tree when nothing is left
	Empty        bool   // base has all of it already
	Commits      int    // how many commits were made; 0 when head is used as it is
	Squashed     bool   // merges couldn't be flattened without loss, so it is one commit
}

// Replay makes the linear history that adds base..head to base, without a work tree. The same inputs
// give the same commits. When base is an ancestor of head, head itself is the result.
//
// Commits that change nothing (any more) are left out, as is one whose change base has already, should it conflict.
// Merges within the range are flattened: their sides are replayed in order. Where that conflicts or its outcome
// isn't the one of merging head into base (a merge that had changes of its own), everything becomes one commit with
// the tree of that merge. A *ConflictError tells the paths; ErrUnrelated, that there is nothing in common.
func (m *Mirror) Replay(ctx context.Context, base, head string, committer Identity) (Replayed, error) {
	result, err := m.replay(ctx, base, head, committer)
	if err != nil {
		return Replayed{}, fmt.Errorf("replay %.12s onto %.12s: %w", head, base, err)
	}
	return result, nil
}

func (m *Mirror) replay(ctx context.Context, base, head string, committer Identity) (Replayed, error) {
	s, err := m.span(ctx, base, head)
	switch {
	case err != nil:
		return Replayed{}, err
	case s.empty:
		return s.nothing(), nil
	case s.fork == s.onto.id:
		return Replayed{Commit: s.tip.id, Tree: s.tip.tree}, nil
	}
	onto, tip := s.onto, s.tip
	commits, err := m.revList(ctx, base, head)
	if err != nil {
		return Replayed{}, err
	}
	plain := slices.DeleteFunc(slices.Clone(commits), func(c rawCommit) bool { return len(c.parents) > 1 })
	flat, err := m.replayEach(ctx, onto, plain, committer)
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		// A change that base has already, by way of another commit, conflicts with what was built on it there.
		flat, err = m.replayMissing(ctx, onto, tip, plain, committer, err)
	}
	if len(plain) == len(commits) || err != nil && !errors.As(err, &conflict) {
		return flat, err
	}
	merged, mergeErr := m.mergeTrees(ctx, base, head)
	switch {
	case mergeErr != nil:
		return Replayed{}, mergeErr
	case err == nil && flat.Tree == merged:
		return flat, nil
	case merged == onto.tree:
		return s.nothing(), nil
	}
	return m.squash(ctx, onto, append(plain, tip), merged, committer)
}

// replayEach makes one commit after the other; those that change nothing any more are left out.
func (m *Mirror) replayEach(ctx context.Context, onto rawCommit, commits []rawCommit, committer Identity) (Replayed, error) {
	at := Replayed{Commit: onto.id, Tree: onto.tree}
	p := picker{mirror: m, twins: map[string]string{}, trees: map[string]string{}}
	for _, c := range commits {
		tree, err := p.pick(ctx, at.Tree, c)
		if err != nil {
			return Replayed{}, err
		}
		if tree == at.Tree {
			continue
		}
		id, err := m.writeCommit(ctx, c.object(tree, committer, c.authorDate(), at.Commit))
		if err != nil {
			return Replayed{}, err
		}
		at = Replayed{Commit: id, Tree: tree, Commits: at.Commits + 1}
	}
	if at.Tree == onto.tree {
		return Replayed{Commit: onto.id, Tree: onto.tree, Empty: true}, nil
	}
	return at, nil
}

// replayMissing is replayEach without the commits whose very change is in onto's history; failed is what the attempt with them said.
func (m *Mirror) replayMissing(ctx context.Context, onto, tip rawCommit, plain []rawCommit, committer Identity, failed error) (Replayed, error) {
	out, err := m.read(ctx, "rev-list", "--cherry-pick", "--right-only", "--no-merges", "--end-of-options", onto.id+"..."+tip.id)
	if err != nil {
		return Replayed{}, err
	}
	ids := strings.Fields(string(out))
	missing := slices.DeleteFunc(slices.Clone(plain), func(c rawCommit) bool { return !slices.Contains(ids, c.id) })
	if len(missing) == len(plain) {
		return Replayed{}, failed
	}
	return m.replayEach(ctx, onto, missing, committer)
}

// squash makes one commit with a tree that is known. Its message tells all subjects, its author is the last one's.
func (m *Mirror) squash(ctx context.Context, onto rawCommit, commits []rawCommit, tree string, committer Identity) (Replayed, error) {
	last := commits[len(commits)-1]
	if len(commits) > 1 {
		last = commits[len(commits)-2] // the tip itself may be a bare merge
	}
	if len(commits) > 2 {
		var b strings.Builder
		b.WriteString(commits[0].subject() + "\n\n")
		for _, c := range commits[:len(commits)-1] {
			b.WriteString("* " + c.subject() + "\n")
		}
		last.message, last.encoding = b.String(), ""
	}
	id, err := m.writeCommit(ctx, last.object(tree, committer, last.authorDate(), onto.id))
	if err != nil {
		return Replayed{}, err
	}
	return Replayed{Commit: id, Tree: tree, Commits: 1, Squashed: true}, nil
}

// picker applies single commits to trees. merge-tree of git 2.38 finds the base of a merge in the histories of the two
// commits it merges, so each gets a twin with the same tree but a history that has just the right base in it.
type picker struct {
	mirror *Mirror
	twins  map[string]string // commit → twin
	trees  map[string]string // commit → tree
}

// pick is the tree of applying the change that c made to its parent to the tree onto.
func (p *picker) pick(ctx context.Context, onto string, c rawCommit) (string, error) {
	p.trees[c.id] = c.tree
	var parent, parentTree string
	if len(c.parents) > 0 {
		parent = c.parents[0]
		var err error
		if parentTree, err = p.tree(ctx, parent); err != nil {
			return "", err
		}
	} else { // a root commit: its parent is the empty tree
		empty, err := p.mirror.git.Do(ctx, gitcmd.Call{GitDir: p.mirror.dir, Stdin: []byte{}, Args: []string{"mktree"}})
		if err != nil {
			return "", err
		}
		parentTree = strings.TrimSpace(string(empty))
	}
	switch {
	case c.tree == parentTree:
		return onto, nil
	case onto == parentTree:
		return c.tree, nil
	}
	base, ok := p.twins[parent]
	if !ok {
		var err error
		if base, err = p.twin(ctx, parentTree, ""); err != nil {
			return "", err
		}
		p.twins[parent] = base
	}
	theirs, err := p.twin(ctx, c.tree, base)
	if err != nil {
		return "", err
	}
	p.twins[c.id] = theirs
	ours, err := p.twin(ctx, onto, base)
	if err != nil {
		return "", err
	}
	tree, err := p.mirror.mergeTrees(ctx, ours, theirs)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		conflict.Commit = c.id
	}
	return tree, err
}

func (p *picker) tree(ctx context.Context, commit string) (string, error) {
	if tree, ok := p.trees[commit]; ok {
		return tree, nil
	}
	tree, err := p.mirror.Tree(ctx, commit)
	if err == nil {
		p.trees[commit] = tree
	}
	return tree, err
}

func (p *picker) twin(ctx context.Context, tree, parent string) (string, error) {
	const who = "orch <orch@localhost> 0 +0000\n"
	object := "tree " + tree + "\n"
	if parent != "" {
		object += "parent " + parent + "\n"
	}
	return p.mirror.writeCommit(ctx, []byte(object+"author "+who+"committer "+who+"\n"))
}
