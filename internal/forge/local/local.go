// Package local lands on git repositories of this machine, bare or with a checkout.
package local

import (
	"context"
	"log/slog"
	"os"

	"orch/internal/forge"
)

// Runner runs git, isolated from the configuration of whoever runs orch.
type Runner interface {
	Run(ctx context.Context, gitDir string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunTree adds a work tree and, unless it is empty, an index file.
	RunTree(ctx context.Context, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunHolding lets the process share a lock, which thus outlives orch with it.
	RunHolding(ctx context.Context, lock *os.File, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
}

// Local is the forge of repositories that are directories on this machine.
type Local struct {
	git   Runner
	log   *slog.Logger
	euid  int
	owner func(path string) (uid int, err error)
}

// New makes a Local; a nil logger discards.
func New(git Runner, log *slog.Logger) *Local {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Local{git: git, log: log, euid: os.Geteuid(), owner: ownerOf}
}

var _ forge.Forge = (*Local)(nil)
