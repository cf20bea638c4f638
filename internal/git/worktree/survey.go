package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/git"
)

// inTheWay says whether git would wait for ever for what is at name, or be led away by it: a pipe where it reads a
// file, a link where it looks for refs or objects.
func inTheWay(name string, mode fs.FileMode) bool {
	if mode.IsRegular() || mode.IsDir() {
		return false
	}
	parts := strings.Split(name, "/")
	if !slices.Contains(parts[:len(parts)-1], ".git") {
		switch path.Base(name) {
		case ".gitignore", ".gitattributes", ".gitmodules": // git opens them by their name, wherever they are
			return mode&fs.ModeSymlink == 0
		}
		return false
	}
	return mode&fs.ModeSymlink == 0 || slices.Contains(parts, "refs") || slices.Contains(parts, "objects")
}

// Unblocked refuses what is in git's way below one of the directories at, which are below work.
func Unblocked(work string, at ...string) error {
	for _, dir := range at {
		err := filepath.WalkDir(filepath.Join(work, dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // what can't be looked at blocks nothing; git says what it makes of it
			}
			if rel, err := filepath.Rel(work, name); err == nil && inTheWay(rel, d.Type()) {
				return &Error{Problem: ProblemStrange, Detail: fmt.Sprintf("%q in the workspace is %s, not a file", rel, kind(d.Type()))}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeSymlink:
		return "a link"
	case fs.ModeNamedPipe:
		return "a pipe"
	case fs.ModeSocket:
		return "a socket"
	default:
		return "a device"
	}
}

// Tidy takes away what no process may wait for from the directory dir, and opens directories that are closed to their own
// user, so that all in them can be kept, and removed. No content is lost by it. A file in the place of the directory is put
// into one.
func Tidy(ctx context.Context, m *git.Mirror, dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode().IsRegular() {
		info, err = enclose(dir)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err == nil && info.Mode()&0o700 != 0o700 {
		err = os.Chmod(dir, info.Mode().Perm()|0o700)
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // somebody else's; whoever needs it meets it again
		case d.IsDir():
			openUp(root, name, d)
		case inTheWay(name, d.Type()):
			m.Git().Logger().WarnContext(ctx, "removed from a workspace, as git would wait for it",
				slog.String("dir", dir), slog.String("path", name), slog.String("kind", kind(d.Type())))
			return root.Remove(name)
		}
		return nil
	})
}

// openUp lets the directory's user read, write and enter it. One of another user stays as it is.
func openUp(root *os.Root, name string, d fs.DirEntry) {
	if info, err := d.Info(); err == nil && info.Mode()&0o700 != 0o700 {
		_ = root.Chmod(name, info.Mode().Perm()|0o700)
	}
}

// enclose puts the file that is at dir into a directory there.
func enclose(dir string) (fs.FileInfo, error) {
	temp := git.Hidden(dir, "file")
	if err := errors.Join(git.RemoveAll(temp), os.MkdirAll(temp, 0o755)); err != nil { //nolint:gosec // as any workspace
		return nil, err
	}
	if err := os.Rename(dir, filepath.Join(temp, filepath.Base(dir))); err != nil {
		return nil, err
	}
	if err := os.Rename(temp, dir); err != nil {
		return nil, err
	}
	return os.Lstat(dir)
}

// RemoveLocks removes the lock files of git processes that were killed. No process of the task lives when it is called.
func RemoveLocks(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".git", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path.Base(name) == "objects" && !strings.Contains(name, "/refs/") && !strings.Contains(name, "/logs/"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".lock"): // no ref's name may end so
			return root.Remove(name)
		}
		return nil
	})
}
