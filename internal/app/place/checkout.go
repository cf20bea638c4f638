package place

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"orch/internal/git"
	"orch/internal/task"
)

// Checkout is where one command of a task runs: the same place for the same run, so that a re-attached one still has it.
func (p *Places) Checkout(t task.Task, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(p.checkouts(t), hex.EncodeToString(sum[:6]))
}

func (p *Places) checkouts(t task.Task) string {
	return filepath.Join(p.root.CheckoutsDir(), t.Repo, t.Key)
}

// MakeCheckout makes a checkout anew: a half-made one of a process that died is of no use.
func (p *Places) MakeCheckout(ctx context.Context, t task.Task, dir, commit string) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	if err := errors.Join(git.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // the data root above it is closed
		return fmt.Errorf("make room for a checkout: %w", err)
	}
	return m.Checkout(ctx, dir, commit)
}
