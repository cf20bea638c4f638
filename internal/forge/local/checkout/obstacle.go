package checkout

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/problem"
)

// CanFollow refuses a landing from old to new that a checkout couldn't follow without losing something.
func (k *Keeper) CanFollow(ctx context.Context, c Checkout, old, to string) error {
	if err := k.unobstructed(ctx, c, old, to); err != nil {
		return err
	}
	return k.rehearse(ctx, c, old, to)
}

// rehearse refuses a landing that git wouldn't let a checkout follow, for whatever status doesn't tell: a changed file that is
// marked to be taken for unchanged, say.
func (k *Keeper) rehearse(ctx context.Context, c Checkout, old, to string) error {
	dir, err := os.MkdirTemp("", "orch-index-*")
	if err != nil {
		return fmt.Errorf("copy the index of %s: %w", c.WorkTree, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index := filepath.Join(dir, "index")
	if err := copyFile(filepath.Join(c.GitDir, "index"), index); err != nil {
		return fmt.Errorf("copy the index of %s: %w", c.WorkTree, err)
	}
	flags, err := k.filterFlags(ctx, c.GitDir)
	if err != nil {
		return err
	}
	git := func(args ...string) error {
		_, err := k.git.RunTree(ctx, c.GitDir, c.WorkTree, index, nil, slices.Concat(flags, args)...)
		return err
	}
	_ = git("update-index", "-q", "--ignore-submodules", "--refresh") // as before the checkout follows
	err = git("read-tree", "-n", "-m", "-u", old, to)
	if problem.ExitCode(err) > 0 {
		return cantFollow(c, err)
	}
	return err
}

// unobstructed refuses a landing that would write over files which git doesn't track. read-tree looks after most of them,
// but takes ignored ones for worthless.
func (k *Keeper) unobstructed(ctx context.Context, c Checkout, old, to string) error {
	changes, err := k.changes(ctx, c.GitDir, old, to)
	if err != nil {
		return err
	}
	deleted := map[string]bool{}
	for _, ch := range changes {
		deleted[ch.path] = ch.status == 'D'
	}
	var inTheWay []string
	for _, ch := range changes {
		if ch.status == 'A' {
			if path := obstacle(c.WorkTree, ch.path, deleted); path != "" {
				inTheWay = append(inTheWay, path)
			}
		}
	}
	if len(inTheWay) == 0 {
		return nil
	}
	return problem.New(forge.CodeOverwrites, "move them away, or check out another branch there",
		"untracked files in %s would be overwritten: %s", c.WorkTree, some(inTheWay))
}

// obstacle is what stands where path would be made and won't be removed by the landing itself, or "".
func obstacle(workTree, path string, deleted map[string]bool) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		info, err := os.Lstat(filepath.Join(workTree, at))
		switch {
		case err != nil:
			return ""
		case !info.IsDir() && deleted[at]:
			return ""
		case !info.IsDir():
			return at
		}
	}
	found := "" // path is a directory: all in it must go
	_ = filepath.WalkDir(filepath.Join(workTree, path), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			found = path // what can't be looked at is somebody's
			return fs.SkipAll
		}
		if d.IsDir() {
			return nil
		}
		if rel, err := filepath.Rel(workTree, name); err == nil && !deleted[rel] {
			found = rel
			return fs.SkipAll
		}
		return nil
	})
	return found
}
