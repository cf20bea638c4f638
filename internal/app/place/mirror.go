package place

import (
	"context"
	"path/filepath"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
)

// Mirrors opens a repository's mirror in the data root.
type Mirrors struct {
	git *gitcmd.Git
	dir string
}

// Open makes the mirror when it isn't there.
func (m Mirrors) Open(ctx context.Context, repo forge.Repo) (*git.Mirror, error) {
	return git.OpenMirror(ctx, m.git, filepath.Join(m.dir, repo.Name))
}
