package workspace

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

// scan compares a directory with a commit, by an index of its own and the mirror's git directory, so that
// nothing which is configured in the directory counts.
type scan struct {
	mirror    *git.Mirror
	work      string
	base      string
	index     string
	changed   []string // tracked paths that differ, or are gone
	untracked []string // neither tracked nor ignored; a repository within ends in a slash
	notes     []string // what couldn't be looked at or kept
}

// newScan looks at the directory work; base is a commit of the mirror, or "" for nothing. Close it.
func newScan(ctx context.Context, m *git.Mirror, work, base string) (*scan, error) {
	temp, err := os.MkdirTemp(m.TempDir(), "index-")
	if err != nil {
		return nil, err
	}
	s := &scan{mirror: m, work: work, base: base, index: filepath.Join(temp, "index")}
	if err := s.look(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("look at the work tree: %w", err)
	}
	return s, nil
}

func (s *scan) close() { _ = os.RemoveAll(filepath.Dir(s.index)) }

func (s *scan) look(ctx context.Context) error {
	if s.base != "" {
		if _, err := s.run(ctx, nil, "read-tree", s.base); err != nil {
			return err
		}
		// Exit code 1 only says that something differs.
		if _, err := s.run(ctx, nil, "update-index", "-q", "--ignore-submodules", "--refresh"); err != nil && gitcmd.ExitCode(err) != 1 {
			return err
		}
		out, err := s.run(ctx, nil, "diff-files", "-z", "--name-only", "--ignore-submodules=dirty", "--no-ext-diff")
		if err != nil {
			return err
		}
		s.changed = gitcmd.SplitNUL(out)
	}
	var warnings string
	out, err := s.mirror.Git().Do(ctx, gitcmd.Call{
		GitDir: s.mirror.Dir(), WorkTree: s.work, Index: s.index, Warnings: &warnings,
		Args: []string{"ls-files", "-z", "--others", "--exclude-standard"},
	})
	if err != nil {
		return err
	}
	s.untracked = gitcmd.SplitNUL(out)
	s.noteLines(warnings)
	return nil
}

func (s *scan) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return s.mirror.Git().RunTree(ctx, s.mirror.Dir(), s.work, s.index, stdin, args...)
}

// dirty has all paths that differ, sorted.
func (s *scan) dirty() []string {
	paths := slices.Concat(s.changed, s.untracked)
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (s *scan) note(path, what string) { s.notes = append(s.notes, fmt.Sprintf("%q: %s", path, what)) }

func (s *scan) noteLines(warnings string) {
	for line := range strings.Lines(warnings) {
		s.notes = append(s.notes, strings.TrimSpace(line))
	}
}

// tree writes everything that isn't ignored as a tree object of the mirror. What can't be read is noted and left out.
func (s *scan) tree(ctx context.Context, depth int) (string, error) {
	var gone, there, nested []string
	for _, path := range s.dirty() {
		switch {
		case strings.HasSuffix(path, "/"):
			nested = append(nested, path)
		case !reachable(s.work, path):
			gone = append(gone, path)
		default:
			if err := readable(filepath.Join(s.work, path)); err != nil {
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
		if err := s.addNested(ctx, strings.TrimSuffix(path, "/"), depth); err != nil {
			return "", err
		}
	}
	out, err := s.run(ctx, nil, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// drop takes paths out of the index. update-index --remove would refuse one below a directory that became a link.
func (s *scan) drop(ctx context.Context, paths []string) error {
	if len(paths) == 0 || s.base == "" {
		return nil
	}
	var b bytes.Buffer
	for _, path := range paths {
		fmt.Fprintf(&b, "0 %s\t%s\x00", strings.Repeat("0", len(s.base)), path)
	}
	_, err := s.run(ctx, b.Bytes(), "update-index", "-z", "--index-info")
	return err
}

// add puts paths into the index. When git refuses one, the others still get in: it is found by halving.
func (s *scan) add(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	var warnings string
	_, err := s.mirror.Git().Do(ctx, gitcmd.Call{
		GitDir: s.mirror.Dir(), WorkTree: s.work, Index: s.index, Warnings: &warnings,
		Stdin: []byte(strings.Join(paths, "\x00") + "\x00"),
		Args:  []string{"update-index", "-z", "--add", "--remove", "--replace", "--stdin"},
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

// addNested keeps the files of a repository within the work tree as ordinary files: a link to its commit would keep nothing.
func (s *scan) addNested(ctx context.Context, path string, depth int) error {
	if depth >= scanDepth {
		s.note(path, "not kept: repositories nested too deeply")
		return nil
	}
	inner, err := newScan(ctx, s.mirror, filepath.Join(s.work, path), "")
	if err != nil {
		return err
	}
	defer inner.close()
	tree, err := inner.tree(ctx, depth+1)
	if err != nil {
		return err
	}
	s.note(path, "a repository within: its files are kept, its history is not")
	for _, note := range inner.notes {
		s.notes = append(s.notes, path+": "+note)
	}
	_, err = s.run(ctx, nil, "read-tree", "-i", "--prefix="+path+"/", tree)
	return err
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

// readable says whether a regular file can be opened; other kinds are git's business.
func readable(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			return pe.Err
		}
		return err
	}
	return file.Close()
}
