package build

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/problem"
)

// Site is a target branch as it was fetched, to build on.
type Site struct {
	Base string // commit of the target

	target    string
	mirror    *git.Mirror
	committer git.Identity
}

// Site brings the mirror up to date and finds the target.
func (b Builder) Site(ctx context.Context, repo forge.Repo, target string) (*Site, error) {
	m, err := b.Mirrors.Open(ctx, repo)
	if err != nil {
		return nil, problem.Of(problem.Mirror, err)
	}
	if err := m.Fetch(ctx, repo.Location); err != nil {
		return nil, problem.Of(problem.Fetch, err)
	}
	base, err := m.Base(ctx, target)
	if err != nil {
		return nil, missing(problem.NoBase, fmt.Errorf("find branch %s in %s: %w", target, repo.Location, err))
	}
	return &Site{Base: base, target: target, mirror: m, committer: b.Committer}, nil
}

// Dir is the git directory of the mirror.
func (s *Site) Dir() string { return s.mirror.Dir() }

// Head is the commit of the task's branch.
func (s *Site) Head(ctx context.Context, of Source) (string, error) {
	head, err := s.mirror.Ref(ctx, of.BranchRef())
	if err != nil {
		return "", missing(problem.NoBranch, err)
	}
	return head, nil
}

// Offered is the head that the repository has of a task that is to land; "" when it has none.
func (s *Site) Offered(ctx context.Context, key string) (string, error) {
	head, err := s.mirror.Offered(ctx, key)
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		return "", problem.Of(problem.Mirror, err)
	}
	return head, nil
}

// Has says whether head is to be had here, as the task's branch or as what was offered.
func (s *Site) Has(ctx context.Context, of Source, head string) (bool, error) {
	offered, err := s.Offered(ctx, of.Key)
	if err != nil || offered == head {
		return err == nil, err
	}
	branch, err := s.mirror.Ref(ctx, of.BranchRef())
	if errors.Is(err, git.ErrNoRef) {
		return false, nil
	}
	if err != nil {
		return false, problem.Of(problem.Mirror, err)
	}
	return branch == head, nil
}

// SetBack moves the task's branch from one commit to another.
func (s *Site) SetBack(ctx context.Context, of Source, to, from string) error {
	if err := s.mirror.SetRef(ctx, of.BranchRef(), to, from); err != nil {
		return problem.Of(problem.Mirror, err)
	}
	return nil
}

// Kept is the commit that is kept to be landed; "" when there is none.
func (s *Site) Kept(ctx context.Context, key string) (string, error) {
	kept, err := s.mirror.Ref(ctx, LandRef(key))
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		return "", problem.Of(problem.Mirror, err)
	}
	return kept, nil
}

// Upstream is the first of the commits that the target's history has already; "" when it has none.
func (s *Site) Upstream(ctx context.Context, commits ...string) (string, error) {
	for _, commit := range commits {
		in, err := s.mirror.IsAncestor(ctx, commit, s.Base)
		if err != nil {
			return "", problem.Of(problem.Mirror, err)
		}
		if in {
			return commit, nil
		}
	}
	return "", nil
}

// Already is the commit as which the target has the first of commits, or the target's own when it has the last one's change; "" when
// it has none.
func (s *Site) Already(ctx context.Context, commits ...string) (string, error) {
	commit, err := s.Upstream(ctx, commits...)
	if err != nil || commit != "" {
		return commit, err
	}
	contained, err := s.Contains(ctx, commits[len(commits)-1])
	if err != nil || !contained {
		return "", err
	}
	return s.Base, nil
}

// Contains says whether the target has all that head changes already, in whatever commits: as one that a person squashed, or as
// its own ones that were copied there. It looks at the change as a whole; one that conflicts with the target isn't in it.
func (s *Site) Contains(ctx context.Context, head string) (bool, error) {
	contained, err := s.mirror.Contains(ctx, s.Base, head)
	if err != nil {
		return false, problem.Of(problem.Replay, err)
	}
	return contained, nil
}

// Changes says whether head has changed anything since it left the target: a branch may have nothing but empty commits, or such
// as take each other back. What the target has in its history has changed it.
func (s *Site) Changes(ctx context.Context, head string) (bool, error) {
	landed, err := s.Upstream(ctx, head)
	if err != nil || landed != "" {
		return true, err
	}
	paths, err := s.mirror.ChangedPaths(ctx, s.Base, head)
	if err != nil {
		return false, problem.Of(problem.Mirror, err)
	}
	return len(paths) > 0, nil
}

// TakenBack says whether the target, which has commit in its history, has lost again what commit changed since it left since.
func (s *Site) TakenBack(ctx context.Context, commit, since string) (bool, error) {
	gone, err := s.mirror.TakenBack(ctx, s.Base, commit, since)
	if err != nil {
		return false, problem.Of(problem.Replay, err)
	}
	return gone, nil
}

// TakenBackError says that the work stands on what the target had and doesn't have any more: to land it would bring that back.
type TakenBackError struct {
	Target string
	Commit string // the newest of it
}

func (e *TakenBackError) Error() string {
	return fmt.Sprintf("%s was set back behind commit %.12s, which the work stands on", e.Target, e.Commit)
}

// own refuses a head that brings along what was taken off the target, unless the target has the same change by another commit. A
// head that the target itself was at is its own.
func (s *Site) own(ctx context.Context, head string) error {
	fork, err := s.mirror.ForkPoint(ctx, s.target, head)
	if err != nil {
		return problem.Of(problem.Mirror, err)
	}
	if fork == "" || fork == head || fork == s.Base {
		return nil
	}
	in, err := s.mirror.IsAncestor(ctx, fork, s.Base)
	if err != nil {
		return problem.Of(problem.Mirror, err)
	}
	if in {
		return nil
	}
	left, err := s.mirror.Replay(ctx, s.Base, fork, s.committer)
	var conflict *git.ConflictError
	switch {
	case err == nil && left.Empty:
		return nil
	case err == nil, errors.As(err, &conflict):
		return &TakenBackError{Target: s.target, Commit: fork}
	}
	return problem.Of(problem.Replay, err)
}

// Make makes what would land of head on the commit onto, the target or what is stacked on it, and keeps it. The same commits,
// method and title give the same commit. A *git.ConflictError and a *TakenBackError are for the author.
func (s *Site) Make(ctx context.Context, of Source, onto, head string, method git.Method) (git.Replayed, error) {
	if err := s.own(ctx, head); err != nil {
		return git.Replayed{}, err
	}
	made, err := s.mirror.Compose(ctx, git.Change{Base: onto, Head: head, Method: method, Message: of.message(method)}, s.committer)
	var conflict *git.ConflictError
	switch {
	case errors.As(err, &conflict):
		return git.Replayed{}, err
	case err != nil:
		return git.Replayed{}, problem.Of(problem.Replay, err)
	case made.Empty:
		return made, nil
	}
	if err := s.mirror.SetRef(ctx, LandRef(of.Key), made.Commit, ""); err != nil {
		return git.Replayed{}, problem.Of(problem.Mirror, err)
	}
	return made, nil
}

// message is that of the commit which a method makes.
func (s Source) message(method git.Method) string {
	title := strings.Join(strings.Fields(s.Title), " ")
	switch {
	case method == git.Merge:
		return "Merge " + s.Key + ": " + title + "\n"
	case title == "":
		return s.Key + "\n"
	}
	return title + " (" + s.Key + ")\n"
}
