package worktree

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"orch/internal/lfs"
)

// sort tells files which differ from those that git-lfs has filled with what their pointer in the commit names. With its
// filter, which is never run here, git would find no difference in these.
func (s *Scan) sort(ctx context.Context, differing []string) error {
	pointers, err := s.pointers(ctx, differing)
	if err != nil {
		return err
	}
	for i, path := range differing {
		filled := false
		if p := pointers[i]; p != nil && reachable(s.work(), path) {
			filled, err = p.Matches(ctx, filepath.Join(s.work(), path))
			if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ELOOP) {
				return err
			}
		}
		if filled {
			s.smudged = append(s.smudged, path)
		} else {
			s.changed = append(s.changed, path)
		}
	}
	return nil
}

// pointers are those that the commit has at paths; nil where it has another content.
func (s *Scan) pointers(ctx context.Context, paths []string) ([]*lfs.Pointer, error) {
	found := make([]*lfs.Pointer, len(paths))
	if len(paths) == 0 {
		return found, nil
	}
	var names strings.Builder
	for _, path := range paths {
		names.WriteString(s.base + ":" + path + "\x00")
	}
	out, err := s.Run(ctx, []byte(names.String()), "cat-file", "-z", "--batch-check=%(objectname) %(objectsize)")
	if err != nil {
		return nil, err
	}
	var ids strings.Builder
	var small []int
	i := 0
	for line := range strings.Lines(string(out)) {
		id, size, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(size); err == nil && n <= lfs.MaxPointer && i < len(paths) {
			ids.WriteString(id + "\n")
			small = append(small, i)
		}
		i++
	}
	if i != len(paths) || len(small) == 0 { // a name that git couldn't read: nothing is taken for a pointer
		return found, nil
	}
	out, err = s.Run(ctx, []byte(ids.String()), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	n := 0
	for _, content := range lfs.Objects(out) {
		if p, is := lfs.Parse(content); is && n < len(small) {
			found[small[n]] = &p
		}
		n++
	}
	return found, nil
}
