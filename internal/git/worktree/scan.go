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
	"syscall"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// scanDepth bounds how deep repositories are nested in each other.
const scanDepth = 8

// Scan compares a directory with a commit, by an index of its own and the mirror's git directory, so that
// nothing which is configured in the directory counts.
type Scan struct {
	mirror    *git.Mirror
	gitDir    string // which has the commit
	top       string // the workspace
	at        string // the directory, below top; "" is top itself
	depth     int    // of repositories around it
	base      string
	Index     string
	changed   []string // tracked paths that differ, or are gone
	smudged   []string // tracked paths with the content that their pointer names: git-lfs put it there
	untracked []string // neither tracked nor ignored; a repository within ends in a slash
	within    []*inner // repositories which the commit names by one of their commits
	stray     []string // files where such a repository should be
	Notes     []string // what couldn't be looked at or kept
	History   []string // commits of the mirror that keep what repositories within have
}

// Look compares the directory top with base, a commit of the mirror, or "" for nothing. Close what it found.
func Look(ctx context.Context, m *git.Mirror, top, base string) (*Scan, error) {
	return newScan(ctx, &Scan{mirror: m, gitDir: m.Dir(), top: top, base: base})
}

func newScan(ctx context.Context, s *Scan) (*Scan, error) {
	temp, err := os.MkdirTemp(s.mirror.TempDir(), "index-")
	if err != nil {
		return nil, err
	}
	s.Index = filepath.Join(temp, "index")
	if err := s.look(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("look at the work tree: %w", err)
	}
	return s, nil
}

func (s *Scan) work() string { return filepath.Join(s.top, s.at) }

// Close removes what the scan needed.
func (s *Scan) Close() {
	for _, in := range s.within {
		in.close()
	}
	_ = os.RemoveAll(filepath.Dir(s.Index))
}

func (s *Scan) look(ctx context.Context) error {
	if s.base != "" {
		if err := s.compare(ctx); err != nil {
			return err
		}
		if err := s.lookWithin(ctx); err != nil {
			return err
		}
	}
	var warnings string
	out, err := s.do(ctx, gitcmd.Call{Args: []string{"ls-files", "-z", "--others", "--exclude-standard"}, Warnings: &warnings})
	if err != nil {
		return err
	}
	s.untracked = gitcmd.SplitNUL(out)
	s.noteLines(warnings)
	return nil
}

// compare reads the commit into the index and finds what differs. Repositories within are lookWithin's.
func (s *Scan) compare(ctx context.Context) error {
	if _, err := s.Run(ctx, nil, "read-tree", s.base); err != nil {
		return err
	}
	// Exit code 1 only says that something differs.
	if _, err := s.Run(ctx, nil, "update-index", "-q", "--ignore-submodules", "--refresh"); err != nil && gitcmd.ExitCode(err) != 1 {
		return err
	}
	changed, err := s.differing(ctx)
	if err != nil {
		return err
	}
	return s.sort(ctx, changed)
}

// differing are the tracked paths whose content isn't the index's. Repositories within are none.
func (s *Scan) differing(ctx context.Context) ([]string, error) {
	out, err := s.Run(ctx, nil, "diff-files", "-z", "--name-only", "--ignore-submodules=all", "--no-ext-diff")
	return gitcmd.SplitNUL(out), err
}

// Rewrite makes tracked files what the commit has. Those which git-lfs has filled with what it names stay filled.
func (s *Scan) Rewrite(ctx context.Context) error {
	paths := slices.Clone(s.changed)
	for _, in := range s.within {
		paths = append(paths, in.path) // its place, where it isn't any more
	}
	if len(paths) > 0 {
		stdin := []byte(strings.Join(paths, "\x00") + "\x00")
		if _, err := s.Run(ctx, stdin, "checkout-index", "-q", "-f", "-u", "-z", "--stdin"); err != nil {
			return Corrupt("the work tree can't be written", err)
		}
	}
	left, err := s.differing(ctx)
	if err != nil {
		return err
	}
	for _, path := range left {
		if !slices.Contains(s.smudged, path) {
			return &Error{Problem: ProblemStrange, Detail: fmt.Sprintf("%q in the work tree can't be made what the commit has", path)}
		}
	}
	return nil
}

// Run runs git on the work tree, with the scan's index.
func (s *Scan) Run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return s.do(ctx, gitcmd.Call{Stdin: stdin, Args: args})
}

func (s *Scan) do(ctx context.Context, c gitcmd.Call) ([]byte, error) {
	c.GitDir, c.WorkTree, c.Index, c.Timeout = s.gitDir, s.work(), s.Index, workTimeout
	out, err := s.mirror.Git().Do(ctx, c)
	return out, stuck(err)
}

// Dirty has all paths that differ, sorted. A repository within whose files do ends in a slash.
func (s *Scan) Dirty() []string {
	paths := slices.Concat(s.changed, s.untracked)
	for _, in := range s.within {
		if in.moved() {
			paths = append(paths, in.path)
		}
		if in.dirty() {
			paths = append(paths, in.path+"/")
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (s *Scan) note(path, what string) { s.Notes = append(s.Notes, fmt.Sprintf("%q: %s", path, what)) }

func (s *Scan) noteLines(warnings string) {
	for line := range strings.Lines(warnings) {
		s.Notes = append(s.Notes, strings.TrimSpace(line))
	}
}

// Tree writes everything that isn't ignored as a tree object of the mirror. What can't be read is noted and left out.
// Of repositories within it keeps what a removal would lose: all, or those which differ.
func (s *Scan) Tree(ctx context.Context, all bool) (string, error) {
	var gone, there, nested []string
	for _, path := range slices.Concat(s.changed, s.untracked) {
		switch {
		case strings.HasSuffix(path, "/"):
			nested = append(nested, strings.TrimSuffix(path, "/"))
		case !reachable(s.work(), path):
			gone = append(gone, path)
		default:
			if err := readable(s.work(), path); err != nil {
				s.note(path, "not kept: "+err.Error())
				continue
			}
			there = append(there, path)
		}
	}
	if err := s.drop(ctx, gone); err != nil {
		return "", err
	}
	if err := s.add(ctx, there); err != nil {
		return "", err
	}
	for _, path := range nested {
		if err := s.addNested(ctx, path); err != nil {
			return "", err
		}
	}
	if err := s.keepWithin(ctx, all); err != nil {
		return "", err
	}
	out, err := s.Run(ctx, nil, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// drop takes paths out of the index. update-index --remove would refuse one below a directory that became a link.
func (s *Scan) drop(ctx context.Context, paths []string) error {
	if len(paths) == 0 || s.base == "" {
		return nil
	}
	var b bytes.Buffer
	for _, path := range paths {
		fmt.Fprintf(&b, "0 %s\t%s\x00", strings.Repeat("0", len(s.base)), path)
	}
	_, err := s.Run(ctx, b.Bytes(), "update-index", "-z", "--index-info")
	return err
}

// add puts paths into the index. When git refuses one, the others still get in: it is found by halving.
func (s *Scan) add(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	var warnings string
	_, err := s.do(ctx, gitcmd.Call{
		Stdin: []byte(strings.Join(paths, "\x00") + "\x00"), Warnings: &warnings,
		Args: []string{"update-index", "-z", "--add", "--remove", "--replace", "--stdin"},
	})
	s.noteLines(warnings)
	var ge *gitcmd.Error
	if err == nil || !errors.As(err, &ge) || ge.Code <= 0 || diskFull(ge) {
		return err
	}
	if len(paths) == 1 {
		s.note(paths[0], "not kept: "+strings.TrimSpace(ge.Stderr))
		return nil
	}
	half := len(paths) / 2
	if err := s.add(ctx, paths[:half]); err != nil {
		return err
	}
	return s.add(ctx, paths[half:])
}

// reachable says whether path is there below work without a link on the way.
func reachable(work, path string) bool {
	at := work
	parts := strings.Split(path, "/")
	for i, part := range parts {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil || i < len(parts)-1 && !info.IsDir() {
			return false
		}
	}
	return true
}

// readable opens a regular file, after giving its user the right to if need be; other kinds are git's business.
func readable(work, path string) error {
	path = filepath.Join(work, path)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(path, info.Mode().Perm()|0o400) == nil {
		file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			return pe.Err
		}
		return err
	}
	return file.Close()
}

// RemoveUntracked removes what is neither tracked nor ignored, and directories that are empty without it.
func (s *Scan) RemoveUntracked(root *os.Root) error {
	for _, path := range s.untracked {
		if strings.HasSuffix(path, "/") {
			if err := git.RemoveAll(filepath.Join(s.work(), path)); err != nil {
				return err
			}
		} else if err := root.Remove(path); err != nil && reachable(s.work(), path) {
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
