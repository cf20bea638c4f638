package process

import "context"

// WaitExit is waitExit.
func WaitExit(ctx context.Context, id Identity) error { return waitExit(ctx, id) }
