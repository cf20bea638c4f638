package local

import (
	"context"

	"orch/internal/forge"
)

// Claim makes c the claim on target.
func (l *Local) Claim(_ context.Context, repo forge.Repo, _ string, _ forge.Claim) error {
	_, err := l.openOwn(repo.Location)
	return err
}
