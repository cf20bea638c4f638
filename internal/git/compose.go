package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Method is how a change becomes what lands.
type Method string

// The methods.
const (
	FastForward Method = "fast-forward" // the same as Rebase: what it makes lands by a fast-forward
	Rebase      Method = "rebase"       // the change's commits on the base; the head itself when it isn't behind
	Merge       Method = "merge"        // a merge commit, also when the head isn't behind
	Squash      Method = "squash"       // one commit
)

// Change is what is to be made a commit that lands.
type Change struct {
	Base, Head string // full commit ids
	Method     Method // empty means Rebase
	Message    string // of the commit that Merge and Squash make; empty: one is made up from the change
}

// Compose makes the commit that adds a change to its base, without a work tree. The same inputs give the same commit:
// its dates are the author's dates of the change's head. For Rebase see Replay; Merge and Squash take the tree that git
// merge would make, in a commit of the committer's, or of the author of the change's first commit.
//
// Nothing is made of what the base has already: Replayed.Empty. A *ConflictError tells the paths; ErrUnrelated, that there
// is nothing in common.
func (m *Mirror) Compose(ctx context.Context, c Change, committer Identity) (Replayed, error) {
	switch c.Method {
	case "", FastForward, Rebase:
		return m.Replay(ctx, c.Base, c.Head, committer)
	case Merge, Squash:
		made, err := m.compose(ctx, c, committer)
		if err != nil {
			return Replayed{}, fmt.Errorf("%s %.12s onto %.12s: %w", c.Method, c.Head, c.Base, err)
		}
		return made, nil
	}
	return Replayed{}, fmt.Errorf("compose %.12s onto %.12s: no method %q", c.Head, c.Base, c.Method)
}

func (m *Mirror) compose(ctx context.Context, c Change, committer Identity) (Replayed, error) {
	s, err := m.span(ctx, c.Base, c.Head)
	if err != nil || s.empty {
		return s.nothing(), err
	}
	tree := s.tip.tree
	if s.fork != s.onto.id {
		if tree, err = m.mergeTrees(ctx, c.Base, c.Head); err != nil {
			return Replayed{}, err
		}
	}
	if tree == s.onto.tree {
		return s.nothing(), nil
	}
	made, parents := rawCommit{message: "Merge commit " + s.tip.id}, []string{s.onto.id, s.tip.id}
	made.author = fmt.Sprintf("%s <%s> %s", tame(committer.Name), tame(committer.Email), s.tip.authorDate())
	if c.Method == Squash {
		parents = parents[:1]
		if made, err = m.firstOf(ctx, c.Base, c.Head); err != nil {
			return Replayed{}, err
		}
	}
	if c.Message != "" {
		made.message, made.encoding = strings.TrimRight(strings.ReplaceAll(c.Message, "\x00", ""), "\n")+"\n", ""
	}
	id, err := m.writeCommit(ctx, made.object(tree, committer, s.tip.authorDate(), parents...))
	if err != nil {
		return Replayed{}, err
	}
	return Replayed{Commit: id, Tree: tree, Commits: 1, Squashed: c.Method == Squash}, nil
}

// Contains says whether base has all that head changes since they parted, in whatever commits: merging head into base would
// change nothing. A change that conflicts with base isn't in it.
func (m *Mirror) Contains(ctx context.Context, base, head string) (bool, error) {
	contained, err := m.contains(ctx, base, head)
	if err != nil {
		return false, fmt.Errorf("ask whether %.12s has the change of %.12s: %w", base, head, err)
	}
	return contained, nil
}

func (m *Mirror) contains(ctx context.Context, base, head string) (bool, error) {
	s, err := m.span(ctx, base, head)
	if err != nil || s.empty || s.fork == s.onto.id {
		return err == nil && s.empty, err
	}
	tree, err := m.mergeTrees(ctx, base, head)
	if _, conflicts := errors.AsType[*ConflictError](err); conflicts {
		return false, nil
	}
	return err == nil && tree == s.onto.tree, err
}

// TakenBack says whether base has nothing any more of what head changed since it left since, e.g. because a later commit
// reverts it: to revert it would change nothing. What conflicts with base is there, as is a change that comes to nothing.
func (m *Mirror) TakenBack(ctx context.Context, base, head, since string) (bool, error) {
	gone, err := m.takenBack(ctx, base, head, since)
	if err != nil {
		return false, fmt.Errorf("ask whether %.12s has lost the change of %.12s: %w", base, head, err)
	}
	return gone, nil
}

func (m *Mirror) takenBack(ctx context.Context, base, head, since string) (bool, error) {
	fork, err := m.mergeBase(ctx, since, head)
	if err != nil {
		return false, err
	}
	ends, err := m.readCommits(ctx, []byte(base+"\n"+head+"\n"+fork+"\n"))
	if err != nil {
		return false, err
	}
	onto, done, before := ends[0], ends[1], ends[2]
	if done.tree == before.tree || onto.tree == done.tree {
		return false, nil
	}
	picker := &picker{mirror: m, twins: map[string]string{}, trees: map[string]string{done.id: done.tree}}
	tree, err := picker.pick(ctx, onto.tree, rawCommit{id: before.id, tree: before.tree, parents: []string{done.id}})
	if _, conflicts := errors.AsType[*ConflictError](err); conflicts {
		return false, nil
	}
	return err == nil && tree == onto.tree, err
}

// firstOf is the first commit of a change that isn't a merge, or its first.
func (m *Mirror) firstOf(ctx context.Context, base, head string) (rawCommit, error) {
	commits, err := m.revList(ctx, base, head)
	if err != nil {
		return rawCommit{}, err
	}
	return commits[max(0, slices.IndexFunc(commits, func(c rawCommit) bool { return len(c.parents) < 2 }))], nil
}

// span is a change and what it is to be added to.
type span struct {
	onto, tip rawCommit
	fork      string // where they parted
	empty     bool   // onto has all of it, or the same tree
}

func (m *Mirror) span(ctx context.Context, base, head string) (span, error) {
	ends, err := m.readCommits(ctx, []byte(base+"\n"+head+"\n"))
	if err != nil {
		return span{}, err
	}
	s := span{onto: ends[0], tip: ends[1]}
	if s.tip.tree == s.onto.tree {
		s.empty = true
		return s, nil
	}
	s.fork, err = m.mergeBase(ctx, base, head)
	s.empty = err == nil && s.fork == s.tip.id
	return s, err
}

func (s span) nothing() Replayed {
	return Replayed{Commit: s.onto.id, Tree: s.onto.tree, Empty: true}
}
