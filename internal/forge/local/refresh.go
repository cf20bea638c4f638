package local

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

	"orch/internal/forge"
	"orch/internal/forge/local/indexlock"
)

// Refresh lets every work tree that has target checked out follow its move from old to new. Untracked files stay.
//
// The new index is made beside the old one and renamed onto it last, under an index.lock that can be recognised: so a
// Refresh that was killed at any point leaves either nothing, or files that are as in old, as in new, or cut short,
// and the next one brings it to its end.
func (l *Local) Refresh(ctx context.Context, repo forge.Repo, target, old, to string) error {
	r, err := l.openOwn(repo.Location)
	if err != nil {
		return err
	}
	target, all, err := l.around(ctx, r, target)
	if err != nil {
		return err
	}
	if err := l.ownCheckouts(r, all, target); err != nil {
		return err
	}
	for _, c := range having(all, target) {
		if err := l.follow(ctx, r, c, target, old, to); err != nil {
			return fmt.Errorf("refresh %s: %w", c.workTree, err)
		}
	}
	return nil
}

func (l *Local) follow(ctx context.Context, r *repository, c checkout, target, old, to string) error {
	now, err := l.head(ctx, r, target)
	if err != nil {
		return err
	}
	if now != to {
		return l.overtaken(ctx, c, now, old)
	}
	path := filepath.Join(c.gitDir, "index.lock")
	lock, err := indexlock.Take(path)
	if errors.Is(err, indexlock.ErrHeld) {
		return locked(path)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	l.at(pointRefreshLocked)
	f := follower{l: l, c: c, lock: lock, index: filepath.Join(c.gitDir, "orch-index"), old: old, to: to}
	defer func() { _ = os.Remove(f.index) }()
	return f.run(ctx)
}

// rehearse refuses a landing that git wouldn't let a checkout follow, for whatever status doesn't tell: a changed file that is
// marked to be taken for unchanged, say.
func (l *Local) rehearse(ctx context.Context, c checkout, old, to string) error {
	dir, err := os.MkdirTemp("", "orch-index-*")
	if err != nil {
		return fmt.Errorf("copy the index of %s: %w", c.workTree, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index := filepath.Join(dir, "index")
	if err := copyFile(filepath.Join(c.gitDir, "index"), index); err != nil {
		return fmt.Errorf("copy the index of %s: %w", c.workTree, err)
	}
	flags, err := l.filterFlags(ctx, c.gitDir)
	if err != nil {
		return err
	}
	git := func(args ...string) error {
		_, err := l.git.RunTree(ctx, c.gitDir, c.workTree, index, nil, slices.Concat(flags, args)...)
		return err
	}
	_ = git("update-index", "-q", "--ignore-submodules", "--refresh") // as before the checkout follows
	err = git("read-tree", "-n", "-m", "-u", old, to)
	if exitCode(err) > 0 {
		return cantFollow(c, err)
	}
	return err
}

// cantFollow is what git says of a checkout in which somebody's changes are in the way.
func cantFollow(c checkout, err error) error {
	return problem(forge.CodeDirty, "put the named files away, then retry", "the checkout %s can't follow the landing: %s",
		c.workTree, strings.Join(strings.Fields(said(err)), " "))
}

// overtaken decides about a checkout whose branch isn't at the landed commit (any more).
func (l *Local) overtaken(ctx context.Context, c checkout, now, old string) error {
	if now == old {
		return errors.New("the branch has not moved")
	}
	_, err := l.git.RunTree(ctx, c.gitDir, c.workTree, "", nil, "diff-index", "--cached", "--quiet", "--ignore-submodules=dirty", now)
	if exitCode(err) == 1 {
		return problem(forge.CodeMoved, "compare git status with what you want, then reset or commit",
			"%s has moved on while its checkout still waited for a landing", c.workTree)
	}
	return err
}

// follower brings one checkout from old to new.
type follower struct {
	l       *Local
	c       checkout
	lock    *indexlock.Lock
	index   string
	flags   []string // say which filters run
	old, to string
}

func (f *follower) run(ctx context.Context) error {
	if err := copyFile(filepath.Join(f.c.gitDir, "index"), f.index); err != nil {
		return fmt.Errorf("copy the index: %w", err)
	}
	_ = os.Remove(f.index + ".lock") // of a run that was killed: this one has the lock
	var err error
	if f.flags, err = f.l.filterFlags(ctx, f.c.gitDir); err != nil {
		return err
	}
	_, err = f.git(ctx, nil, "diff-index", "--cached", "--quiet", "--ignore-submodules=dirty", f.to)
	if err == nil {
		return nil // done before: the index comes last
	}
	if exitCode(err) != 1 {
		return err
	}
	f.refreshStat(ctx)
	if _, err := f.git(ctx, nil, "read-tree", "-m", "-u", f.old, f.to); err != nil {
		if exitCode(err) <= 0 {
			return err
		}
		if err := f.resume(ctx); err != nil {
			return err
		}
	}
	f.l.at(pointRefreshTree)
	if err := os.Rename(f.index, filepath.Join(f.c.gitDir, "index")); err != nil {
		return err
	}
	f.l.at(pointRefreshed)
	return nil
}

func (f *follower) git(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	all := append(append([]string(nil), f.flags...), args...)
	return f.l.git.RunHolding(ctx, f.lock.File(), f.c.gitDir, f.c.workTree, f.index, stdin, all...)
}

// resume goes on after a run that was killed while it wrote files: what is as in new already is told to the index, what
// is cut short is written again. Anything else is somebody's work, and read-tree refuses to touch it.
func (f *follower) resume(ctx context.Context) error {
	changes, err := f.l.changes(ctx, f.c.gitDir, f.old, f.to)
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
			if err := os.Remove(filepath.Join(f.c.workTree, ch.path)); err != nil {
				return err
			}
		}
	}
	if _, err := f.git(ctx, done.Bytes(), "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	f.refreshStat(ctx)
	if _, err := f.git(ctx, nil, "read-tree", "-m", "-u", f.old, f.to); err != nil {
		if exitCode(err) <= 0 {
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
	path := filepath.Join(f.c.workTree, ch.path)
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
	have, err := readFile(path)
	if err != nil {
		return untouched, nil //nolint:nilerr // read-tree will say what is wrong with it
	}
	if bytes.HasPrefix(want, have) {
		return cutShort, nil
	}
	return untouched, nil
}

// change is one path that differs between two commits.
type change struct {
	status byte   // A, D, M or T
	mode   string // in the newer one; all zeros when it isn't there
	id     string
	path   string
}

func (l *Local) changes(ctx context.Context, gitDir, old, to string) ([]change, error) {
	out, err := l.git.Run(ctx, gitDir, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-ext-diff", old, to)
	if err != nil {
		return nil, fmt.Errorf("compare %.12s with %.12s: %w", old, to, err)
	}
	fields := splitNUL(out)
	var changes []change
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(fields[i])
		if len(meta) != 5 {
			return nil, fmt.Errorf("compare %.12s with %.12s: unexpected %q", old, to, fields[i])
		}
		changes = append(changes, change{status: meta[4][0], mode: meta[1], id: meta[3], path: fields[i+1]})
	}
	return changes, nil
}

// copyFile copies a file; one that isn't there leaves none.
func copyFile(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := readFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644) //nolint:gosec // as git makes it
}
