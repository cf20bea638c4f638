package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/gitdir"
	"orch/internal/forge/local/indexlock"
	"orch/internal/forge/local/problem"
)

// Follow lets a checkout follow the move of its branch, which is at now, from old to new. Untracked files stay.
//
// The new index is made beside the old one and renamed onto it last, under an index.lock that can be recognised: so a
// Follow that was killed at any point leaves either nothing, or files that are as in old, as in new, or cut short,
// and the next one brings it to its end.
func (k *Keeper) Follow(ctx context.Context, c Checkout, now, old, to string) error {
	if now != to {
		return k.overtaken(ctx, c, now, old)
	}
	path := filepath.Join(c.GitDir, "index.lock")
	lock, err := indexlock.Take(path)
	if errors.Is(err, indexlock.ErrHeld) {
		return problem.Locked(path)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	k.at(pointRefreshLocked)
	f := follower{k: k, c: c, lock: lock, index: filepath.Join(c.GitDir, "orch-index"), old: old, to: to}
	defer func() { _ = os.Remove(f.index) }()
	return f.run(ctx)
}

// cantFollow is what git says of a checkout in which somebody's changes are in the way.
func cantFollow(c Checkout, err error) error {
	return problem.New(forge.CodeDirty, "put the named files away, then retry", "the checkout %s can't follow the landing: %s",
		c.WorkTree, strings.Join(strings.Fields(problem.Said(err)), " "))
}

// overtaken decides about a checkout whose branch isn't at the landed commit (any more).
func (k *Keeper) overtaken(ctx context.Context, c Checkout, now, old string) error {
	if now == old {
		return errors.New("the branch has not moved")
	}
	_, err := k.git.RunTree(ctx, c.GitDir, c.WorkTree, "", nil, "diff-index", "--cached", "--quiet", "--ignore-submodules=dirty", now)
	if problem.ExitCode(err) == 1 {
		return problem.New(forge.CodeMoved, "compare git status with what you want, then reset or commit",
			"%s has moved on while its checkout still waited for a landing", c.WorkTree)
	}
	return err
}

// follower brings one checkout from old to new.
type follower struct {
	k       *Keeper
	c       Checkout
	lock    *indexlock.Lock
	index   string
	flags   []string // say which filters run
	old, to string
}

func (f *follower) run(ctx context.Context) error {
	if err := copyFile(filepath.Join(f.c.GitDir, "index"), f.index); err != nil {
		return fmt.Errorf("copy the index: %w", err)
	}
	_ = os.Remove(f.index + ".lock") // of a run that was killed: this one has the lock
	var err error
	if f.flags, err = f.k.filterFlags(ctx, f.c.GitDir); err != nil {
		return err
	}
	_, err = f.git(ctx, nil, "diff-index", "--cached", "--quiet", "--ignore-submodules=dirty", f.to)
	if err == nil {
		return nil // done before: the index comes last
	}
	if problem.ExitCode(err) != 1 {
		return err
	}
	f.refreshStat(ctx)
	if _, err := f.git(ctx, nil, "read-tree", "-m", "-u", f.old, f.to); err != nil {
		if problem.ExitCode(err) <= 0 {
			return err
		}
		if err := f.resume(ctx); err != nil {
			return err
		}
	}
	f.k.at(pointRefreshTree)
	if err := os.Rename(f.index, filepath.Join(f.c.GitDir, "index")); err != nil {
		return err
	}
	f.k.at(pointRefreshed)
	return nil
}

func (f *follower) git(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	all := append(append([]string(nil), f.flags...), args...)
	return f.k.git.RunHolding(ctx, f.lock.File(), f.c.GitDir, f.c.WorkTree, f.index, stdin, all...)
}

// resume goes on after a run that was killed while it wrote files: what is as in new already is told to the index, what
// is cut short is written again. Anything else is somebody's work, and read-tree refuses to touch it.
func (f *follower) resume(ctx context.Context) error {
	changes, err := f.k.changes(ctx, f.c.GitDir, f.old, f.to)
	if err != nil {
		return err
	}
	var done, torn bytes.Buffer
	for _, ch := range changes {
		state, err := f.state(ctx, ch)
		if err != nil {
			return err
		}
		if state == untouched {
			continue
		}
		fmt.Fprintf(&done, "%s %s\t%s\x00", ch.mode, ch.id, ch.path)
		if state == cutShort {
			torn.WriteString(ch.path + "\x00")
			if err := os.Remove(filepath.Join(f.c.WorkTree, ch.path)); err != nil {
				return err
			}
		}
	}
	if _, err := f.git(ctx, done.Bytes(), "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	f.refreshStat(ctx)
	if _, err := f.git(ctx, nil, "read-tree", "-m", "-u", f.old, f.to); err != nil {
		if problem.ExitCode(err) <= 0 {
			return err
		}
		return cantFollow(f.c, err)
	}
	if torn.Len() > 0 {
		if _, err := f.git(ctx, torn.Bytes(), "checkout-index", "-q", "-f", "-u", "-z", "--stdin"); err != nil {
			return err
		}
	}
	f.refreshStat(ctx)
	return nil
}

// refreshStat tells the index what the files look like that are as it has them. It fails when some aren't, which is no news.
func (f *follower) refreshStat(ctx context.Context) {
	_, _ = f.git(ctx, nil, "update-index", "-q", "--ignore-submodules", "--refresh")
}

type fileState int

const (
	untouched fileState = iota // as in old, or changed by somebody: read-tree decides
	written                    // as in new
	cutShort                   // the beginning of what it should be
)

// state says how far a killed run got with one path.
func (f *follower) state(ctx context.Context, ch change) (fileState, error) {
	path := filepath.Join(f.c.WorkTree, ch.path)
	info, err := os.Lstat(path)
	if err != nil {
		if ch.status == 'D' && (errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fs.ErrPermission)) {
			return written, nil
		}
		return untouched, nil
	}
	switch {
	case ch.status == 'D' && info.IsDir(): // a directory has taken its place
		return written, nil
	case ch.status == 'D' || ch.mode == "160000":
		return untouched, nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil || ch.mode != "120000" {
			return untouched, err
		}
		return f.sameAs(ctx, ch, []byte(target), "hash-object", "--no-filters", "--stdin")
	case !info.Mode().IsRegular() || ch.mode == "120000":
		return untouched, nil
	}
	if (info.Mode()&0o100 != 0) == (ch.mode == "100755") {
		state, err := f.sameAs(ctx, ch, nil, "hash-object", "--", ch.path)
		if err != nil || state == written {
			return state, err
		}
	}
	return f.cutShort(ctx, ch, path, info.Size())
}

func (f *follower) sameAs(ctx context.Context, ch change, stdin []byte, args ...string) (fileState, error) {
	out, err := f.git(ctx, stdin, args...)
	if err != nil {
		return untouched, err
	}
	if strings.TrimSpace(string(out)) == ch.id {
		return written, nil
	}
	return untouched, nil
}

// cutShort compares a file with the beginning of what it should become.
func (f *follower) cutShort(ctx context.Context, ch change, path string, size int64) (fileState, error) {
	want, err := f.git(ctx, nil, "cat-file", "--filters", "--path="+ch.path, ch.id)
	if err != nil {
		return untouched, err
	}
	if size > int64(len(want)) {
		return untouched, nil
	}
	have, err := gitdir.ReadFile(path)
	if err != nil {
		return untouched, nil //nolint:nilerr // read-tree will say what is wrong with it
	}
	if bytes.HasPrefix(want, have) {
		return cutShort, nil
	}
	return untouched, nil
}

// copyFile copies a file; one that isn't there leaves none.
func copyFile(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := gitdir.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644) //nolint:gosec // as git makes it
}
