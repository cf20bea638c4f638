package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// inner is a repository within the work tree of another one: a submodule, or one that merely lies there.
type inner struct {
	path string // below the directory of the one around it
	link string // the commit that the one around it names; "" when it isn't tracked
	view *View  // nil when it can't be read
	scan *Scan  // nil when it can't be read
	why  string // it can't be
}

func (in *inner) close() {
	if in.scan != nil {
		in.scan.Close()
	}
	if in.view != nil {
		in.view.Close()
	}
}

// moved says whether it is at another commit than the one it is named by.
func (in *inner) moved() bool {
	return in.link != "" && in.view != nil && in.view.Head != "" && in.view.Head != in.link
}

// dirty says whether something of it isn't committed, or nobody can tell.
func (in *inner) dirty() bool { return in.scan == nil || len(in.scan.Dirty()) > 0 }

// lookWithin looks at the repositories that the commit names. Where none is, as before `git submodule update`, nothing
// is missing.
func (s *Scan) lookWithin(ctx context.Context) error {
	out, err := s.Run(ctx, nil, "ls-tree", "-r", "-d", "-z", "--full-tree", s.base)
	if err != nil {
		return err
	}
	for _, entry := range gitcmd.SplitNUL(out) {
		meta, path, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(meta); len(fields) == 3 && fields[1] == "commit" {
			if err := s.lookAt(ctx, path, fields[2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAt looks at the place of a repository that is named by its commit link.
func (s *Scan) lookAt(ctx context.Context, path, link string) error {
	entries, err := os.ReadDir(filepath.Join(s.work(), path))
	if !reachable(s.work(), path+"/.") || err != nil {
		s.changed = append(s.changed, path)
		return nil //nolint:nilerr // it isn't there, or isn't a directory
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" }) {
		if len(entries) > 0 {
			s.stray = append(s.stray, path)
		}
		return nil
	}
	in, err := s.openInner(ctx, path, link)
	if err == nil {
		s.within = append(s.within, in)
	}
	return err
}

// openInner opens the repository at path. Its being broken is no error.
func (s *Scan) openInner(ctx context.Context, path, link string) (*inner, error) {
	in := &inner{path: path, link: link}
	err := s.fill(ctx, in)
	if broken, ok := errors.AsType[*Error](err); ok {
		in.why, err = broken.Detail, nil
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (s *Scan) fill(ctx context.Context, in *inner) error {
	at := filepath.Join(s.at, in.path)
	if s.depth >= scanDepth {
		return &Error{Problem: ProblemStrange, Detail: "it is nested too deeply"}
	}
	gitDir, err := gitDirOf(s.top, at)
	if err != nil {
		return err
	}
	if in.view, err = openRepository(ctx, s.mirror, s.top, gitDir); err != nil {
		return err
	}
	look := &Scan{mirror: s.mirror, gitDir: in.view.Dir, top: s.top, at: at, depth: s.depth + 1, base: in.view.Head}
	in.scan, err = newScan(ctx, look)
	return Corrupt("its commit can't be read", err)
}

// gitDirOf is where the repository at a path below top has its git directory, below top too: a submodule's is in the
// one of the repository around it. Behind anything else could be anybody's.
func gitDirOf(top, at string) (string, error) {
	path := filepath.Join(at, ".git")
	info, err := os.Lstat(filepath.Join(top, path))
	if err == nil && info.IsDir() {
		return path, nil
	}
	line, err := readSmall(filepath.Join(top, path))
	if err != nil {
		return "", &Error{Problem: ProblemStrange, Detail: "its .git can't be read", Err: err}
	}
	target := strings.TrimSpace(strings.TrimPrefix(line, "gitdir:"))
	if !filepath.IsAbs(target) {
		target = filepath.Join(top, at, target)
	}
	rel, err := filepath.Rel(top, target)
	if err != nil || !strings.HasPrefix(rel, ".git/modules/") || !reachable(top, rel) {
		return "", &Error{Problem: ProblemStrange, Detail: "its git directory is elsewhere"}
	}
	return rel, nil
}

// addNested keeps the files of a repository that isn't tracked as ordinary files, since a link to its commit would keep
// nothing, and the commits that only it has as history.
func (s *Scan) addNested(ctx context.Context, path string) error {
	in, err := s.openInner(ctx, path, "")
	if err != nil {
		return err
	}
	defer in.close()
	tree, err := s.filesOf(ctx, in)
	if err != nil {
		return err
	}
	if err := s.keepHistory(ctx, in); err != nil {
		return err
	}
	if in.why == "" {
		s.note(path, fmt.Sprintf("a repository within, at commit %.12s: its files are kept", in.view.Head))
	}
	_, err = s.Run(ctx, nil, "read-tree", "-i", "--prefix="+path+"/", tree)
	return err
}

// keepWithin keeps what tracked repositories have and the commits which name them don't say.
func (s *Scan) keepWithin(ctx context.Context, all bool) error {
	for _, in := range s.within {
		dirty := in.dirty()
		if err := s.link(ctx, in); err != nil {
			return err
		}
		if dirty {
			if err := s.keepFiles(ctx, in); err != nil {
				return err
			}
		}
		if all || dirty || in.moved() {
			if err := s.keepHistory(ctx, in); err != nil {
				return err
			}
		}
	}
	if !all {
		return nil
	}
	for _, path := range s.stray {
		if err := s.keepFiles(ctx, &inner{path: path, why: "it is no repository"}); err != nil {
			return err
		}
	}
	return nil
}

// link puts the commit that a tracked repository is at into the index.
func (s *Scan) link(ctx context.Context, in *inner) error {
	id := in.link
	if in.moved() {
		id = in.view.Head
	} else if s.base != "" {
		return nil // it is in the index
	}
	_, err := s.Run(ctx, fmt.Appendf(nil, "160000 %s\t%s\x00", id, in.path), "update-index", "-z", "--index-info")
	return err
}

// keepFiles makes a commit of the files of a tracked repository, whose place in the tree is its link's.
func (s *Scan) keepFiles(ctx context.Context, in *inner) error {
	tree, err := s.filesOf(ctx, in)
	if err != nil {
		return err
	}
	message := "orch: files of " + filepath.Join(s.at, in.path) + "\n"
	if in.view != nil && in.view.Head != "" {
		message += "\nTheir repository was at commit " + in.view.Head + ".\n"
	}
	// Without a date of its own it is the same whenever it is made, so that it is made once.
	object := fmt.Sprintf("tree %s\nauthor %[2]s 0 +0000\ncommitter %[2]s 0 +0000\n\n%s", tree, "orch <orch@localhost>", message)
	out, err := s.mirror.Git().Run(ctx, s.mirror.Dir(), []byte(object), "hash-object", "-t", "commit", "-w", "--stdin")
	if err != nil {
		return err
	}
	s.History = append(s.History, strings.TrimSpace(string(out)))
	return nil
}

// filesOf writes the files of a repository within, but what it ignores, as a tree object of the mirror.
func (s *Scan) filesOf(ctx context.Context, in *inner) (string, error) {
	if s.depth >= scanDepth {
		s.note(in.path, "not kept: repositories nested too deeply")
		out, err := s.Run(ctx, []byte{}, "mktree")
		return strings.TrimSpace(string(out)), err
	}
	if in.scan == nil {
		s.note(in.path, "its files are kept, its history is not: "+in.why)
	}
	files, err := newScan(ctx, &Scan{
		mirror: s.mirror, gitDir: s.mirror.Dir(), top: s.top, at: filepath.Join(s.at, in.path), depth: s.depth + 1,
	})
	if err != nil {
		return "", err
	}
	defer files.Close()
	if in.scan != nil {
		tracked, err := in.scan.tracked(ctx)
		if err != nil {
			return "", err
		}
		files.untracked = slices.Concat(tracked, in.scan.untracked)
		files.stray = in.scan.stray
		files.within, in.scan.within = in.scan.within, nil
	}
	tree, err := files.Tree(ctx, true)
	for _, note := range files.Notes {
		s.Notes = append(s.Notes, in.path+": "+note)
	}
	s.History = append(s.History, files.History...)
	return tree, err
}

// tracked are the files of the commit that are there; repositories within are none.
func (s *Scan) tracked(ctx context.Context) ([]string, error) {
	out, err := s.Run(ctx, nil, "ls-files", "-z", "--cached")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(gitcmd.SplitNUL(out), func(path string) bool {
		info, err := os.Lstat(filepath.Join(s.work(), path))
		return err != nil || info.IsDir() || !reachable(s.work(), path)
	}), nil
}

// keepHistory imports the commits that a repository within has and that it didn't fetch from anywhere.
func (s *Scan) keepHistory(ctx context.Context, in *inner) error {
	own, err := in.own(ctx)
	if broken, ok := errors.AsType[*Error](err); ok {
		s.note(in.path, Unkept(ctx, s.mirror, "its history is not kept: ", broken))
		return nil
	}
	if err != nil {
		return err
	}
	for _, id := range own {
		err := in.view.Import(ctx, id)
		if err == nil {
			id, err = s.mirror.Resolve(ctx, id)
		}
		broken, ok := errors.AsType[*Error](err)
		if errors.Is(err, git.ErrNoRef) {
			broken, ok = &Error{Problem: ProblemCorrupt, Detail: "it is no commit"}, true
		}
		if ok {
			s.note(in.path, Unkept(ctx, s.mirror, fmt.Sprintf("commit %.12s not kept: ", id), broken))
			continue
		}
		if err != nil {
			return err
		}
		if !slices.Contains(s.History, id) {
			s.History = append(s.History, id)
		}
	}
	return nil
}

// own are the commits at the tips of a repository within that no branch of where it was fetched from has.
func (in *inner) own(ctx context.Context) ([]string, error) {
	if in.view == nil {
		return nil, nil
	}
	fetched := map[string]bool{}
	for ref, id := range in.view.Refs {
		if strings.HasPrefix(ref, "refs/remotes/") {
			fetched[id] = true
		}
	}
	var own []string
	for _, tip := range in.view.Tips() {
		if fetched[tip] {
			continue
		}
		out, err := in.view.Run(ctx, "rev-list", "-n", "1", tip, "--not", "--remotes")
		if err != nil {
			return nil, Corrupt("its history can't be read", err)
		}
		if len(bytes.TrimSpace(out)) > 0 {
			own = append(own, tip)
		}
	}
	return own, nil
}

// Clean says whether the scan found nothing to keep.
func (s *Scan) Clean(ctx context.Context) (bool, error) {
	if len(s.Dirty()) > 0 || len(s.Notes) > 0 {
		return false, nil
	}
	for _, in := range s.within {
		own, err := in.own(ctx)
		if err != nil || len(own) > 0 {
			return false, err
		}
		if clean, err := in.scan.Clean(ctx); err != nil || !clean {
			return false, err
		}
	}
	return true, nil
}

// Leave removes tracked repositories that aren't as the commit names them, for their places to be empty.
func (s *Scan) Leave() error {
	for _, in := range s.within {
		if in.moved() || in.dirty() {
			if err := git.RemoveAll(filepath.Join(s.work(), in.path)); err != nil {
				return err
			}
		}
	}
	return nil
}
