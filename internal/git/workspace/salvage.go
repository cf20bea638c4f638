package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// Salvage keeps everything in the workspace that goes beyond its start as ref: what was committed on whatever branch, and
// what wasn't, untracked files included and ignored ones not. It returns the commit that ref is at, or "" when there was
// nothing. The work tree stays as it is. It works on what is left when the repository in it is broken or gone;
// what couldn't be kept is told in the commit's message and in the log. A ref that exists isn't lost: the new commit
// has it as a parent. What the newest salvage beside ref has already is kept there: that one's commit is returned.
func (w *Workspace) Salvage(ctx context.Context, ref string) (string, error) {
	known, err := w.resume(ctx) // imported earlier; the agent may have dropped it since
	if err != nil {
		return "", fmt.Errorf("salvage workspace %s: %w", w.spec.Branch, err)
	}
	id, err := w.salvage(ctx, ref, extent{have: w.start, known: known, pick: (*view).tips})
	if err != nil {
		return "", fmt.Errorf("salvage workspace %s: %w", w.spec.Branch, err)
	}
	return id, nil
}

// extent says how much is worth keeping.
type extent struct {
	have  string               // safe already, with its history
	known string               // a commit in the mirror that is to be kept too
	pick  func(*view) []string // commits of the workspace to keep
}

// salvage keeps what e asks for and the work tree as ref.
func (w *Workspace) salvage(ctx context.Context, ref string, e extent) (string, error) {
	var notes []string
	v, err := openView(ctx, w.mirror, w.spec.Dir)
	var broken *Error
	switch {
	case err == nil:
		defer v.close()
	case errors.As(err, &broken) && broken.Problem == ProblemGone:
		return "", nil
	case errors.As(err, &broken):
		notes = append(notes, broken.Error())
	default:
		return "", err
	}
	base, tips, lost, err := w.keepCommits(ctx, v, e)
	if err != nil {
		return "", err
	}
	notes = append(notes, lost...)
	tree, more, err := w.treeOfWork(ctx, base)
	if err != nil {
		return "", err
	}
	return w.record(ctx, ref, salvaged{base: base, tree: tree, tips: tips, notes: append(notes, more...)})
}

// keepCommits imports the commits that e asks for. base is what the work tree is compared with.
func (w *Workspace) keepCommits(ctx context.Context, v *view, e extent) (base string, tips, notes []string, err error) {
	var broken *Error
	base, err = w.base(ctx, v)
	if errors.As(err, &broken) {
		notes = append(notes, broken.Error())
		base, err = w.base(ctx, nil)
	}
	if err != nil {
		return "", nil, nil, err
	}
	if v != nil {
		for _, tip := range e.pick(v) {
			id, err := w.keepCommit(ctx, v, tip)
			if errors.As(err, &broken) {
				notes = append(notes, fmt.Sprintf("commit %.12s not kept: %v", tip, broken))
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

func (w *Workspace) keepCommit(ctx context.Context, v *view, tip string) (string, error) {
	if tip == w.start {
		return tip, nil
	}
	if err := v.importCommits(ctx, tip); err != nil {
		return "", err
	}
	id, err := w.mirror.Resolve(ctx, tip) // a branch may be made to point at a tag, or worse
	if errors.Is(err, git.ErrNoRef) {
		return "", &Error{Problem: ProblemCorrupt, Detail: "it is no commit"}
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

func (w *Workspace) treeOfWork(ctx context.Context, base string) (tree string, notes []string, err error) {
	s, err := newScan(ctx, w.mirror, w.spec.Dir, base)
	if err != nil {
		return "", nil, err
	}
	defer s.close()
	tree, err = s.tree(ctx, 0)
	return tree, s.notes, err
}

// salvaged is what there is to keep.
type salvaged struct {
	base, tree  string
	tips, notes []string
}

func (s salvaged) parents() []string {
	parents := []string{s.base}
	for _, tip := range s.tips {
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
	if s.tree == baseTree && len(s.tips) == 1 && s.tips[0] == last {
		return last, nil
	}
	same, err := w.sameSalvage(ctx, last, s.tree, s.parents())
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
	if s.tree == baseTree && len(s.tips) == 0 {
		if len(s.notes) > 0 {
			w.mirror.Git().Logger().WarnContext(ctx, "salvage left something out", slog.String("branch", w.spec.Branch), slog.Any("notes", s.notes))
		}
		return former, nil
	}
	if former == "" {
		if last, err := w.keptBefore(ctx, ref, baseTree, s); err != nil || last != "" {
			return last, err
		}
	}
	var id string
	if s.tree == baseTree && len(s.tips) == 1 && len(s.notes) == 0 && (former == "" || former == s.tips[0]) {
		id = s.tips[0]
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
		same, err := w.sameSalvage(ctx, former, s.tree, parents)
		if err != nil || same {
			return former, err
		}
		parents = append(parents, former)
	}
	args := []string{"commit-tree", s.tree}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	message := "orch: salvaged from " + w.spec.Branch + "\n"
	if len(s.notes) > 0 {
		message += "\n" + strings.Join(s.notes, "\n") + "\n"
	}
	out, err := w.mirror.Git().Do(ctx, gitcmd.Call{GitDir: w.mirror.Dir(), Stdin: []byte(message), Args: args})
	return strings.TrimSpace(string(out)), err
}

func (w *Workspace) sameSalvage(ctx context.Context, former, tree string, parents []string) (bool, error) {
	c, err := w.mirror.Commit(ctx, former)
	if err != nil {
		return false, err
	}
	return c.Tree == tree && len(c.Parents) >= len(parents) && slices.Equal(c.Parents[:len(parents)], parents), nil
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
	if err := w.usable(ctx); err != nil {
		return err
	}
	v, err := openView(ctx, w.mirror, w.spec.Dir)
	if err != nil {
		return err
	}
	defer v.close()
	head := v.refs[w.branchRef()]
	if err := w.checkGrown(ctx, v, head); err != nil {
		return err
	}
	if err := v.importCommits(ctx, head); err != nil {
		return err
	}
	if _, err := w.salvage(ctx, salvageRef, extent{have: head, pick: (*view).checkedOut}); err != nil {
		return err
	}
	s, err := newScan(ctx, w.mirror, w.spec.Dir, head)
	if err != nil {
		return err
	}
	defer s.close()
	root, err := os.OpenRoot(w.spec.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := s.removeUntracked(root); err != nil {
		return err
	}
	if _, err := s.run(ctx, nil, "checkout-index", "-q", "-f", "-u", "-a"); err != nil {
		return err
	}
	if _, err := s.run(ctx, nil, "diff-files", "--quiet", "--ignore-submodules=dirty"); err != nil {
		return fmt.Errorf("verify the work tree: %w", err)
	}
	return settle(root, s.index, w.branchRef())
}

// removeUntracked removes what is neither tracked nor ignored, and directories that are empty without it.
func (s *scan) removeUntracked(root *os.Root) error {
	for _, path := range s.untracked {
		if strings.HasSuffix(path, "/") {
			if err := git.RemoveAll(filepath.Join(s.work, path)); err != nil {
				return err
			}
		} else if err := root.Remove(path); err != nil && reachable(s.work, path) {
			return err
		}
		for dir := filepath.Dir(strings.TrimSuffix(path, "/")); dir != "."; dir = filepath.Dir(dir) {
			if root.Remove(dir) != nil {
				break
			}
		}
	}
	return nil
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
		"index.lock", "HEAD.lock", "config.lock", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD",
		"REVERT_HEAD", "SQUASH_MSG", "REBASE_HEAD", "BISECT_LOG", "BISECT_START", "rebase-merge", "rebase-apply", "sequencer",
	} {
		if err := root.RemoveAll(filepath.Join(".git", name)); err != nil {
			return err
		}
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
