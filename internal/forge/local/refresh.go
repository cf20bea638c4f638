package local

import (
	"context"
	"fmt"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
)

// Refresh lets every work tree that has target checked out follow its move from old to new. Untracked files stay. One that was
// killed is brought to its end by the next.
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
	for _, c := range checkout.Having(all, target) {
		now, err := l.head(ctx, r, target)
		if err == nil {
			err = l.checkouts.Follow(ctx, c, now, old, to)
		}
		if err != nil {
			return fmt.Errorf("refresh %s: %w", c.WorkTree, err)
		}
	}
	return nil
}
