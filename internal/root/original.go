package root

import (
	"context"
	"os"
)

// original refuses a copy of a root in use, which has the generation of its original: the last start was elsewhere, a
// worker of it beats, and nobody works in this directory. A root that was moved has no such worker; one that goes by two names,
// such as those of two containers, has somebody in it.
func (b *binder) original(ctx context.Context, p pair) error {
	if p.row.Generation < 0 || p.host == b.cfg.Host && samePlace(p.dir, b.path) || b.lock.entered() {
		return nil
	}
	return b.alone(ctx, p.marker.RootID)
}

func samePlace(one, other string) bool {
	if one == other {
		return true
	}
	a, errA := os.Stat(one)
	b, errB := os.Stat(other)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
