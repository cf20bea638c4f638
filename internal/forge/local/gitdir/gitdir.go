// Package gitdir reads what is in git directories, without git, and without waiting for what isn't a file.
package gitdir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Is says whether a directory is one of git's.
func Is(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// ReadFile reads a file, and only a file: a pipe in its place would never end.
func ReadFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no file", path))
	}
	return io.ReadAll(file)
}

// OfLinked is the git directory of a linked work tree.
func OfLinked(workTree string) (string, error) {
	content, err := ReadFile(filepath.Join(workTree, ".git"))
	if err != nil {
		return "", fmt.Errorf("read linked work tree: %w", err)
	}
	gitDir := strings.TrimSpace(strings.TrimPrefix(string(content), "gitdir:"))
	if !filepath.IsAbs(gitDir) {
		gitDir = filepath.Join(workTree, gitDir)
	}
	return gitDir, nil
}

// Common is the git directory of the repository that a work tree's own git directory belongs to.
func Common(gitDir string) string {
	content, err := ReadFile(filepath.Join(gitDir, "commondir"))
	if err != nil {
		return gitDir
	}
	common := strings.TrimSpace(string(content))
	if !filepath.IsAbs(common) {
		common = filepath.Join(gitDir, common)
	}
	return common
}

// Main is the repository that a linked work tree belongs to, whose .git it is given; "" where that can't be told.
func Main(dotGit string) string {
	content, err := ReadFile(dotGit)
	if err != nil {
		return ""
	}
	gitDir := strings.TrimSpace(strings.TrimPrefix(string(content), "gitdir:"))
	common, _, linked := strings.Cut(gitDir, "/worktrees/")
	if !linked {
		return ""
	}
	return strings.TrimSuffix(common, "/.git")
}
