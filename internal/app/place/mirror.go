package place

import (
	"context"
	"path/filepath"
	"time"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// Mirrors opens a repository's mirror in the data root.
type Mirrors struct {
	git   *gitcmd.Git
	dir   string
	locks time.Duration // how long a lock of a mirror is waited for; 0 = as long as git's own work may take
}

// Open makes the mirror when it isn't there.
func (m Mirrors) Open(ctx context.Context, repo forge.Repo) (*git.Mirror, error) {
	mirror, err := git.OpenMirror(ctx, m.git, filepath.Join(m.dir, repo.Name))
	if err != nil || m.locks == 0 {
		return mirror, err
	}
	return mirror.WaitFor(m.locks), nil
}
