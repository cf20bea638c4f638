package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/worktree"
)

// Salvage keeps everything in the workspace that goes beyond its start as ref: what was committed on whatever branch, and
// what wasn't, untracked files included and ignored ones not; of repositories within too. It returns the commit that ref
// is at, or "" when there was nothing. The work tree stays as it is, but for what Tidy does. It works on what is left when the repository in it is broken or gone;
// what couldn't be kept is told in the commit's message and in the log. A ref that exists isn't lost: the new commit
// has it as a parent. What the newest salvage beside ref has already is kept there: that one's commit is returned.
func (w *Workspace) Salvage(ctx context.Context, ref string) (string, error) {
	known, err := w.resume(ctx) // imported earlier; the agent may have dropped it since
	if err != nil {
		return "", fmt.Errorf("salvage workspace %s: %w", w.spec.Branch, err)
	}
	id, err := w.salvage(ctx, ref, extent{have: w.start, known: known, pick: (*worktree.View).Tips, within: true})
	if err != nil {
		return "", fmt.Errorf("salvage workspace %s: %w", w.spec.Branch, err)
	}
	return id, nil
}

// extent says how much is worth keeping.
type extent struct {
	have  string                        // safe already, with its history
	known string                        // a commit in the mirror that is to be kept too
	pick  func(*worktree.View) []string // commits of the workspace to keep

	within bool // also of repositories within that are as the commit around them says
}

// salvage keeps what e asks for and the work tree as ref.
func (w *Workspace) salvage(ctx context.Context, ref string, e extent) (string, error) {
	if err := w.Tidy(ctx); err != nil {
		return "", err
	}
	var notes []string
	v, err := worktree.Open(ctx, w.mirror, w.spec.Dir)
	var broken *Error
	switch {
	case err == nil:
		defer v.Close()
	case errors.As(err, &broken) && broken.Problem == worktree.ProblemGone:
		return "", nil
	case errors.As(err, &broken):
		notes = append(notes, worktree.Unkept(ctx, w.mirror, "", broken))
	default:
		return "", err
	}
	base, tips, lost, err := w.keepCommits(ctx, v, e)
	if err != nil {
		return "", err
	}
	notes = append(notes, lost...)
	s, err := worktree.Look(ctx, w.mirror, w.spec.Dir, base)
	if err != nil {
		return "", err
	}
	defer s.Close()
	tree, err := s.Tree(ctx, e.within)
	if err != nil {
		return "", err
	}
	return w.record(ctx, ref, salvaged{base: base, tree: tree, tips: tips, within: s.History, notes: append(notes, s.Notes...)})
}

// keepCommits imports the commits that e asks for. base is what the work tree is compared with.
func (w *Workspace) keepCommits(ctx context.Context, v *worktree.View, e extent) (base string, tips, notes []string, err error) {
	var broken *Error
	base, err = w.base(ctx, v)
	if errors.As(err, &broken) {
		notes = append(notes, worktree.Unkept(ctx, w.mirror, "", broken))
		base, err = w.base(ctx, nil)
	}
	if err != nil {
		return "", nil, nil, err
	}
	if v != nil {
		for _, tip := range e.pick(v) {
			id, err := w.keepCommit(ctx, v, tip)
			if errors.As(err, &broken) {
				notes = append(notes, worktree.Unkept(ctx, w.mirror, fmt.Sprintf("commit %.12s not kept: ", tip), broken))
				continue
			}
			if err != nil {
				return "", nil, nil, err
			}
			tips = append(tips, id)
		}
	}
	if e.known != "" {
		tips = append(tips, e.known)
	}
	tips, err = w.independent(ctx, tips, e.have)
	return base, tips, notes, err
}

func (w *Workspace) keepCommit(ctx context.Context, v *worktree.View, tip string) (string, error) {
	if tip == w.start {
		return tip, nil
	}
	if err := w.take(ctx, v, tip); err != nil {
		return "", err
	}
	id, err := w.mirror.Resolve(ctx, tip) // a branch may be made to point at a tag, or worse
	if errors.Is(err, git.ErrNoRef) {
		return "", &Error{Problem: worktree.ProblemCorrupt, Detail: "it is no commit"}
	}
	return id, err
}

// independent leaves out the commits that are in the history of have or of another one.
func (w *Workspace) independent(ctx context.Context, tips []string, have string) ([]string, error) {
	var kept []string
	slices.Sort(tips)
	tips = slices.Compact(tips)
	for i, tip := range tips {
		others := append([]string{have}, kept...)
		others = append(others, tips[i+1:]...)
		contained := false
		for _, other := range others {
			within, err := w.mirror.IsAncestor(ctx, tip, other)
			if err != nil {
				return nil, err
			}
			contained = contained || within
		}
		if !contained {
			kept = append(kept, tip)
		}
	}
	return kept, nil
}

// salvaged is what there is to keep.
type salvaged struct {
	base, tree string
	tips       []string
	within     []string // commits that keep what repositories within have
	notes      []string
}

// one is the commit that has all of it, if there is one.
func (s salvaged) one(baseTree string) string {
	if s.tree != baseTree || len(s.tips) != 1 || len(s.within)+len(s.notes) > 0 {
		return ""
	}
	return s.tips[0]
}

// message tells what couldn't be kept, too: the same about the same, so that it is told once.
func (s salvaged) message(branch string) string {
	message := "orch: salvaged from " + branch + "\n"
	if len(s.notes) > 0 {
		message += "\n" + strings.ReplaceAll(strings.Join(s.notes, "\n"), "\x00", " ") + "\n"
	}
	return message
}

func (s salvaged) parents() []string {
	parents := []string{s.base}
	for _, tip := range slices.Concat(s.tips, s.within) {
		if tip != s.base {
			parents = append(parents, tip)
		}
	}
	return parents
}

// keptBefore is the newest salvage beside ref if it is the same: after a crash it is found instead of made again.
func (w *Workspace) keptBefore(ctx context.Context, ref, baseTree string, s salvaged) (string, error) {
	list, err := salvagesBelow(ctx, w.mirror, ref[:strings.LastIndexByte(ref, '/')+1])
	if err != nil || len(list) == 0 {
		return "", err
	}
	last := list[len(list)-1].Commit
	if s.one(baseTree) == last {
		return last, nil
	}
	same, err := w.sameSalvage(ctx, last, s)
	if err != nil || !same {
		return "", err
	}
	return last, nil
}

// record points ref at what there is to keep.
func (w *Workspace) record(ctx context.Context, ref string, s salvaged) (string, error) {
	baseTree, err := w.mirror.Tree(ctx, s.base)
	if err != nil {
		return "", err
	}
	former, err := w.mirror.Ref(ctx, ref)
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		return "", err
	}
	if s.tree == baseTree && len(s.tips)+len(s.within)+len(s.notes) == 0 {
		return former, nil
	}
	if former == "" {
		if last, err := w.keptBefore(ctx, ref, baseTree, s); err != nil || last != "" {
			return last, err
		}
	}
	var id string
	if one := s.one(baseTree); one != "" && (former == "" || former == one) {
		id = one
	} else if id, err = w.salvageCommit(ctx, s, former); err != nil {
		return "", err
	}
	if id == former {
		return id, nil
	}
	old := former
	if old == "" {
		old = git.Absent
	}
	if err := w.mirror.SetRef(ctx, ref, id, old); err != nil {
		return "", err
	}
	w.mirror.Git().Logger().InfoContext(ctx, "workspace salvaged",
		slog.String("branch", w.spec.Branch), slog.String("ref", ref), slog.String("commit", id), slog.Any("notes", s.notes))
	return id, nil
}

// salvageCommit makes the commit, unless former is the same already.
func (w *Workspace) salvageCommit(ctx context.Context, s salvaged, former string) (string, error) {
	parents := s.parents()
	if former != "" {
		same, err := w.sameSalvage(ctx, former, s)
		if err != nil || same {
			return former, err
		}
		parents = append(parents, former)
	}
	args := []string{"commit-tree", s.tree}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	out, err := w.mirror.Git().Do(ctx, gitcmd.Call{GitDir: w.mirror.Dir(), Stdin: []byte(s.message(w.spec.Branch)), Args: args})
	return strings.TrimSpace(string(out)), err
}

// sameSalvage says whether former keeps the same, and tells the same of what couldn't be kept.
func (w *Workspace) sameSalvage(ctx context.Context, former string, s salvaged) (bool, error) {
	c, err := w.mirror.Commit(ctx, former)
	if err != nil {
		return false, err
	}
	parents := s.parents()
	return c.Tree == s.tree && c.Message == s.message(w.spec.Branch) &&
		len(c.Parents) >= len(parents) && slices.Equal(c.Parents[:len(parents)], parents), nil
}

// Reset makes index and work tree the head of the workspace's branch, with HEAD on it and no merge or rebase under
// way. Ignored files stay. What would be lost is kept as salvageRef first. A workspace that is broken, or whose branch no
// longer builds on its start, is made anew.
func (w *Workspace) Reset(ctx context.Context, salvageRef string) error {
	err := w.reset(ctx, salvageRef)
	if broken, ok := errors.AsType[*Error](err); ok {
		w.mirror.Git().Logger().WarnContext(ctx, "workspace can't be reset and is made anew",
			slog.String("branch", w.spec.Branch), slog.String("problem", string(broken.Problem)), slog.Any("error", broken))
		err = w.remake(ctx, salvageRef)
	}
	if err != nil {
		return fmt.Errorf("reset workspace %s: %w", w.spec.Branch, err)
	}
	return nil
}

func (w *Workspace) reset(ctx context.Context, salvageRef string) error {
	if err := w.Tidy(ctx); err != nil {
		return err
	}
	if err := w.usable(ctx); err != nil {
		return err
	}
	v, err := worktree.Open(ctx, w.mirror, w.spec.Dir)
	if err != nil {
		return err
	}
	defer v.Close()
	head := v.Refs[w.branchRef()]
	if err := w.checkGrown(ctx, v, head); err != nil {
		return err
	}
	if err := w.take(ctx, v, head); err != nil {
		return err
	}
	e := extent{have: head, pick: (*worktree.View).CheckedOut, within: v.Head != head}
	if _, err := w.salvage(ctx, salvageRef, e); err != nil {
		return err
	}
	return w.resetTree(ctx, head)
}

// resetTree makes the work tree that of the commit head. Where it can't be, as among files of another user, a new one can.
func (w *Workspace) resetTree(ctx context.Context, head string) error {
	s, err := worktree.Look(ctx, w.mirror, w.spec.Dir, head)
	if err != nil {
		return err
	}
	defer s.Close()
	root, err := os.OpenRoot(w.spec.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	err = errors.Join(s.RemoveUntracked(root), s.Leave())
	if errors.Is(err, fs.ErrPermission) {
		return &Error{Problem: worktree.ProblemStrange, Detail: "something in the workspace can't be removed", Err: err}
	}
	if err != nil {
		return err
	}
	if err := s.Rewrite(ctx); err != nil {
		return err
	}
	return settle(root, s.Index, w.branchRef())
}

// settle gives the workspace a new index, puts HEAD on ref, and forgets any operation that was under way. Everything is
// renamed into place below root, so that a link planted there leads nowhere.
func settle(root *os.Root, index, ref string) error {
	content, err := os.Open(index)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	for _, name := range []string{
		"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD",
		"REVERT_HEAD", "SQUASH_MSG", "REBASE_HEAD", "BISECT_LOG", "BISECT_START", "rebase-merge", "rebase-apply", "sequencer",
	} {
		if err := root.RemoveAll(filepath.Join(".git", name)); err != nil {
			return err
		}
	}
	if err := worktree.RemoveLocks(root); err != nil {
		return err
	}
	if err := place(root, ".git/index", content); err != nil {
		return err
	}
	return place(root, ".git/HEAD", strings.NewReader("ref: "+ref+"\n"))
}

func place(root *os.Root, name string, content io.Reader) error {
	temp := name + ".orch"
	if err := root.RemoveAll(temp); err != nil {
		return err
	}
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return root.Rename(temp, name)
}
