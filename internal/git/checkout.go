package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// checkoutMarker is the file in a .git directory that says: made by Checkout, may be thrown away.
const checkoutMarker = "orch-checkout"

// Checkout puts exactly one commit into dir, as a repository of its own on a detached HEAD. It borrows the mirror's
// objects. dir appears at once and whole; a former checkout there is replaced, anything else is ErrForeign.
// RemoveAll drops it.
func (m *Mirror) Checkout(ctx context.Context, dir, commit string) error {
	if err := m.checkout(ctx, dir, commit); err != nil {
		return fmt.Errorf("check out %.12s: %w", commit, err)
	}
	return nil
}

func (m *Mirror) checkout(ctx context.Context, dir, commit string) error {
	if err := throwAway(dir); err != nil {
		return err
	}
	temp := Hidden(dir, "new")
	if err := RemoveAll(temp); err != nil {
		return err
	}
	s := Skeleton{Head: commit, Files: map[string]string{checkoutMarker: commit + "\n"}}
	if err := m.Build(ctx, temp, commit, s); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// throwAway removes what Checkout made at dir.
func throwAway(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Lstat(filepath.Join(dir, ".git", checkoutMarker)); err != nil {
			return fmt.Errorf("%s: %w", dir, ErrForeign)
		}
	}
	return RemoveAll(dir)
}

// Skeleton is a .git directory to be: written directly, it costs no process and has nothing that isn't wanted.
type Skeleton struct {
	Head   string            // content of HEAD
	Refs   map[string]string // ref → commit
	Config string            // more configuration
	Files  map[string]string // more files
}

// Build makes a repository at dir, which mustn't exist, with commit in its index and work tree. It borrows the mirror's
// objects.
func (m *Mirror) Build(ctx context.Context, dir, commit string, s Skeleton) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s: the path must be absolute", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // agents work below it
		return err
	}
	if err := m.writeSkeleton(filepath.Join(dir, ".git"), len(commit), s); err != nil {
		return err
	}
	_, err := m.git.RunTree(ctx, filepath.Join(dir, ".git"), dir, "", nil, "read-tree", "-u", "--reset", commit)
	return err
}

func (m *Mirror) writeSkeleton(gitDir string, idLength int, s Skeleton) error {
	for _, sub := range []string{"objects/info", "objects/pack", "refs/heads", "info"} {
		if err := os.MkdirAll(filepath.Join(gitDir, sub), 0o755); err != nil { //nolint:gosec // as git itself does
			return err
		}
	}
	files := map[string]string{
		"HEAD":                    s.Head + "\n",
		"config":                  BaseConfig(idLength, false) + s.Config,
		"objects/info/alternates": m.Objects() + "\n",
	}
	maps.Copy(files, s.Files)
	for ref, id := range s.Refs {
		files[ref] = id + "\n"
	}
	for name, content := range files {
		path := filepath.Join(gitDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as git itself does
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // as git itself does
			return err
		}
	}
	return nil
}

// BaseConfig is the configuration of a repository whose object ids have so many digits.
func BaseConfig(idLength int, bare bool) string {
	version, extension := 0, ""
	if idLength > 40 {
		version, extension = 1, "[extensions]\n\tobjectFormat = sha256\n"
	}
	return fmt.Sprintf("[core]\n\trepositoryformatversion = %d\n\tfilemode = true\n\tbare = %v\n%s", version, bare, extension)
}

// Hidden is a name beside dir which nothing else has.
func Hidden(dir, purpose string) string {
	dir = filepath.Clean(dir)
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"."+purpose)
}

// RemoveAll removes a tree that programs have written into: directories without write permission, such as module
// caches leave, are made writable first. A path that isn't there is no error.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var unlock func(name string)
	unlock = func(name string) {
		_ = root.Chmod(name, 0o700)
		d, err := root.Open(name)
		if err != nil {
			return
		}
		entries, _ := d.ReadDir(-1)
		_ = d.Close()
		for _, e := range entries {
			if e.IsDir() {
				unlock(filepath.Join(name, e.Name()))
			}
		}
	}
	unlock(".")
	return os.RemoveAll(dir)
}
