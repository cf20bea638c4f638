package local

import (
	"context"
	"log/slog"
	"os"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
)

// Runner runs git, isolated from the configuration of whoever runs orch.
type Runner interface {
	Run(ctx context.Context, gitDir string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunTree adds a work tree and, unless it is empty, an index file.
	RunTree(ctx context.Context, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
	// RunHolding lets the process share a lock, which thus outlives orch with it.
	RunHolding(ctx context.Context, lock *os.File, gitDir, workTree, index string, stdin []byte, args ...string) (stdout []byte, err error)
}

// Config is what a Local may be given.
type Config struct {
	Logger *slog.Logger       // nil discards
	At     func(point string) // called between the steps of a landing and of what follows it; nil = nobody is
}

// Local is the forge of repositories that are directories on this machine.
type Local struct {
	git  Runner
	log  *slog.Logger
	at   func(point)
	euid int

	checkouts *checkout.Keeper

	owner func(path string) (uid int, err error)
}

// point is a place between two steps, at which a crash is tried.
type point string

// The points.
const (
	pointChecked point = "local:checked" // nothing stands in the way of the landing
	pointCopied  point = "local:copied"  // the repository has its commits
	pointSwapped point = "local:swapped" // the target has moved
)

// New makes a Local.
func New(git Runner, cfg Config) *Local {
	l := &Local{git: git, log: cfg.Logger, at: func(point) {}, euid: os.Geteuid(), owner: ownerOf, checkouts: checkout.New(git, cfg.At)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if cfg.At != nil {
		l.at = func(p point) { cfg.At(string(p)) }
	}
	return l
}

var _ forge.Forge = (*Local)(nil)
