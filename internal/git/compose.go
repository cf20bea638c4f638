package git

import (
	"context"
	"fmt"
)

// Method is how a change becomes what lands.
type Method string

// The methods.
const (
	FastForward Method = "fast-forward" // as Rebase
	Rebase      Method = "rebase"       // the change's commits on the base; the head itself when it isn't behind
	Merge       Method = "merge"        // a merge commit
	Squash      Method = "squash"       // one commit
)

// Change is what is to be made a commit that lands.
type Change struct {
	Base, Head string // full commit ids
	Method     Method // empty is Rebase
	Message    string // of the commit that Merge and Squash make
}

// Compose makes the commit that lands.
func (m *Mirror) Compose(ctx context.Context, c Change, committer Identity) (Replayed, error) {
	switch c.Method {
	case "", FastForward, Rebase:
		return m.Replay(ctx, c.Base, c.Head, committer)
	default:
		return Replayed{}, fmt.Errorf("compose %.12s onto %.12s: no method %q", c.Head, c.Base, c.Method)
	}
}
