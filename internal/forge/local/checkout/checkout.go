// Package checkout looks after the work trees of a repository that have a branch checked out which is to move: whether they
// could follow it, and that they do. Nothing of their owner's is lost: what can't follow is refused before, and what was
// interrupted is brought to its end.
package checkout

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/forge/local/gitdir"
	"orch/internal/forge/local/problem"
)

// Runner runs git, isolated from the configuration of whoever runs orch.
type Runner interface {
	Run(ctx context.Context, gitDir string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunTree adds a work tree and, unless it is empty, an index file.
	RunTree(ctx context.Context, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunHolding lets the process share a lock, which thus outlives orch with it.
	RunHolding(ctx context.Context, lock *os.File, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
}

// Keeper looks after checkouts.
type Keeper struct {
	git Runner
	at  func(point)
}

// point is a place between two steps, at which a crash is tried.
type point string

// The points.
const (
	pointRefreshLocked point = "local:refresh_locked" // orch has the checkout's index.lock
	pointRefreshTree   point = "local:refresh_tree"   // the checkout's files are as landed, its index isn't
	pointRefreshed     point = "local:refreshed"      // the checkout has followed
)

// New makes a Keeper. at is called between the steps of what follows a landing; nil = nobody is.
func New(git Runner, at func(point string)) *Keeper {
	k := &Keeper{git: git, at: func(point) {}}
	if at != nil {
		k.at = func(p point) { at(string(p)) }
	}
	return k
}

// Checkout is a work tree of a repository, its main one or a linked one.
type Checkout struct {
	GitDir, WorkTree string
	Branch           string // full name; "" when HEAD is detached
	Away             error  // why it can't be looked at: a linked one may be locked because its disk isn't there
}

// Of has every work tree that is there of the repository at path, whose git directory is gitDir.
func (k *Keeper) Of(ctx context.Context, path, gitDir string) ([]Checkout, error) {
	out, err := k.git.Run(ctx, gitDir, nil, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, fmt.Errorf("list work trees of %s: %w", path, err)
	}
	var found []Checkout
	for i, record := range strings.Split(strings.TrimSuffix(string(out), "\x00\x00"), "\x00\x00") {
		c, usable := Checkout{}, true
		for field := range strings.SplitSeq(record, "\x00") {
			key, value, _ := strings.Cut(field, " ")
			switch key {
			case "worktree":
				c.WorkTree = value
			case "branch":
				c.Branch = value
			case "bare", "prunable":
				usable = false
			}
		}
		if !usable {
			continue
		}
		if i == 0 { // the main one; git's list doesn't know core.worktree
			c.GitDir = gitDir
			c.WorkTree, err = k.mainWorkTree(ctx, path, gitDir)
		} else {
			c.GitDir, c.Away = gitdir.OfLinked(c.WorkTree)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// mainWorkTree is where the main work tree is: core.worktree may put it anywhere.
func (k *Keeper) mainWorkTree(ctx context.Context, path, gitDir string) (string, error) {
	out, err := k.git.Run(ctx, gitDir, nil, "config", "--type=path", "--get", "core.worktree")
	if problem.ExitCode(err) == 1 {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("find the work tree of %s: %w", path, err)
	}
	workTree := strings.TrimSpace(string(out))
	if !filepath.IsAbs(workTree) {
		workTree = filepath.Join(gitDir, workTree)
	}
	return workTree, nil
}

// Having keeps the checkouts that have a branch checked out.
func Having(all []Checkout, branch string) []Checkout {
	return slices.DeleteFunc(slices.Clone(all), func(c Checkout) bool { return c.Branch != "refs/heads/"+branch })
}
