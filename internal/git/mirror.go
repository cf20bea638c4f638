package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"orch/internal/git/gitcmd"
)

// leftoverAge is how old a temporary file in a mirror must be to be a leftover of a killed process:
// well above what one git call may take.
const leftoverAge = 24 * time.Hour

// PublishedPrefix is where a mirror has the salvages that the real repository has below refs/orch/salvage/.
const PublishedPrefix = "refs/orch/published/"

const (
	// HeadPrefix is where a mirror, and the real repository for any other mirror, has the heads of tasks that are to land.
	HeadPrefix = "refs/orch/head/"
	// LandPrefix is where a mirror, and perhaps the real repository, has the commits that would land.
	LandPrefix = "refs/orch/land/"
	// OfferedPrefix is where a mirror has what the real repository has below HeadPrefix (head/KEY) and LandPrefix (land/KEY).
	OfferedPrefix = "refs/orch/offered/"
)

// Mirror is a bare repository of orch's own that holds what a real repository's branches hold, the tasks' branches
// and whatever was salvaged. Nothing in it is ever collected as garbage, since workspaces borrow its objects.
type Mirror struct {
	git      *gitcmd.Git
	dir      string
	lockWait time.Duration
}

// OpenMirror opens the mirror at dir, which is an absolute path, or creates it. Any number of processes may do so at once.
func OpenMirror(ctx context.Context, g *gitcmd.Git, dir string) (*Mirror, error) {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\n\"") {
		return nil, fmt.Errorf("open mirror %q: the path must be absolute and plain", dir)
	}
	m := &Mirror{git: g, dir: filepath.Clean(dir), lockWait: LockWait}
	if !isGitDir(m.dir) {
		if err := m.create(ctx); err != nil {
			return nil, fmt.Errorf("create mirror %s: %w", dir, err)
		}
	}
	m.removeLeftovers()
	return m, nil
}

// WaitFor is the mirror for a caller that won't wait longer for each of its locks.
func (m *Mirror) WaitFor(locks time.Duration) *Mirror {
	impatient := *m
	impatient.lockWait = locks
	return &impatient
}

// Dir is the mirror's git directory.
func (m *Mirror) Dir() string { return m.dir }

// Git is the program that the mirror is worked with.
func (m *Mirror) Git() *gitcmd.Git { return m.git }

// Objects is the directory that other repositories borrow from.
func (m *Mirror) Objects() string { return filepath.Join(m.dir, "objects") }

// TempDir is where to put what is needed for a while. What a killed process left there is removed some day.
func (m *Mirror) TempDir() string { return filepath.Join(m.dir, "orch-tmp") }

func (m *Mirror) create(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(m.dir), 0o755); err != nil { //nolint:gosec // agents read borrowed objects
		return err
	}
	lock, err := flock(ctx, m.lockWait, m.dir+".creating", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if isGitDir(m.dir) {
		return nil // another process was faster
	}
	temp := m.dir + ".new"
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := m.init(ctx, temp, "sha1", lock); err != nil {
		return err
	}
	if err := os.Rename(temp, m.dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(m.dir))
}

// init makes a bare repository at dir.
func (m *Mirror) init(ctx context.Context, dir, format string, hold ...*os.File) error {
	_, err := m.git.Do(ctx, gitcmd.Call{Hold: hold, Args: []string{
		"init", "-q", "--bare", "--template=", "--object-format=" + format, dir,
	}})
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(dir, "orch-tmp"), 0o700)
}

// Fetch brings every branch of the repository at source (a path or an URL) to refs/remotes/origin/, and what was published
// there, by whichever mirror: salvages to refs/orch/published/, heads and commits of landings to refs/orch/offered/. It
// drops the ones which source no longer has. Where branches were before is remembered, for ForkPoint. A source that isn't
// there for now is ErrAway.
func (m *Mirror) Fetch(ctx context.Context, source string) error {
	lock, err := flock(ctx, m.lockWait, filepath.Join(m.dir, "orch-fetch"), syscall.LOCK_EX)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer func() { _ = lock.Close() }()
	args := []string{
		"fetch", "-q", "--prune", "--no-tags", "--force", "--no-write-fetch-head",
		"--no-auto-maintenance", "--no-recurse-submodules",
	}
	args = append(args, m.git.UploadPack(source)...)
	args = append(args, "--", source, "+refs/heads/*:refs/remotes/origin/*", "+refs/orch/salvage/*:"+PublishedPrefix+"*",
		"+"+HeadPrefix+"*:"+OfferedPrefix+"head/*", "+"+LandPrefix+"*:"+OfferedPrefix+"land/*")
	c := gitcmd.Call{Args: args, Hold: []*os.File{lock}, Config: []string{"core.logAllRefUpdates=true"}}
	err = m.write(ctx, c)
	if err != nil && strings.Contains(err.Error(), "mismatched algorithms") {
		if err := m.adoptSHA256(ctx); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		err = m.write(ctx, c)
	}
	if err != nil && strings.Contains(err.Error(), "promisor remote") {
		err = fmt.Errorf("%s: %w: %w", source, ErrPartial, err)
	}
	if err == nil {
		return nil
	}
	if gone := away(source); gone != nil {
		err = fmt.Errorf("%w: %w", gone, err)
	}
	return fmt.Errorf("fetch: %w", err)
}

// Import copies commits, with all that they need, from the git directory at an absolute path. What comes in is checked.
func (m *Mirror) Import(ctx context.Context, gitDir string, ids ...string) error {
	args := []string{"fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"}
	args = append(args, m.git.UploadPack(gitDir)...)
	args = append(append(args, "--", gitDir), ids...)
	return m.write(ctx, gitcmd.Call{Args: args, Config: []string{"fetch.fsckObjects=true"}})
}

// adoptSHA256 turns a mirror that has nothing yet into one of the other object format.
func (m *Mirror) adoptSHA256(ctx context.Context) error {
	out, err := m.read(ctx, "for-each-ref", "--count=1")
	if err != nil {
		return err
	}
	if len(out) > 0 {
		return errors.New("the repository changed its object format")
	}
	temp := m.dir + ".sha256"
	defer func() { _ = os.RemoveAll(temp) }()
	if err := m.init(ctx, temp, "sha256"); err != nil {
		return err
	}
	return os.Rename(filepath.Join(temp, "config"), filepath.Join(m.dir, "config"))
}

// read runs a git command that changes no ref and takes no lock in the mirror.
func (m *Mirror) read(ctx context.Context, args ...string) ([]byte, error) {
	return m.git.Do(ctx, gitcmd.Call{GitDir: m.dir, Args: args})
}

// readLine is read for a command that prints one line.
func (m *Mirror) readLine(ctx context.Context, args ...string) (string, error) {
	out, err := m.read(ctx, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// removeLeftovers drops temporary files of processes that were killed. It is tidiness: errors don't matter.
func (m *Mirror) removeLeftovers() {
	entries, err := os.ReadDir(m.TempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.RemoveAll(filepath.Join(m.TempDir(), e.Name()))
		}
	}
}

// isGitDir says whether dir is a whole git directory; creation renames, so there are no halves.
func isGitDir(dir string) bool {
	for _, name := range []string{"HEAD", "config", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
