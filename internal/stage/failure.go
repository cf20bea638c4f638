package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"orch/internal/queue"
)

// restPause is how long a job rests for what a person or another program has to put right.
const restPause = 30 * time.Second

// awayRest is the longest rest of a job whose repository is away.
const awayRest = 5 * time.Minute

// What resting jobs wait for.
const (
	waitingForSpace         = "disk_space"
	waitingForRepository    = "repository_away"
	waitingForConfiguration = "configuration"
)

// leaves says that an error isn't to be made another one: there is none, the job has ended, or it is to be left.
func leaves(ctx context.Context, l *queue.Lease, err error) bool {
	return err == nil || ctx.Err() != nil || l.Ended() ||
		errors.Is(err, queue.ErrStopping) || errors.Is(err, queue.ErrCancelRequested) || errors.Is(err, queue.ErrLeaseLost)
}

// outOfSpace says that a disk is full: nobody's fault, and over when there is room again. Programs only say so.
func outOfSpace(err error) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	var program interface{ Said() string }
	if !errors.As(err, &program) {
		return false
	}
	said := program.Said()
	return strings.Contains(said, "No space left on device") || strings.Contains(said, "Disk quota exceeded")
}

// workspaceFailure is an error of the machine or the repository, not of the agent: it is retried with a code of its own.
func workspaceFailure(ctx context.Context, doing string, err error) error {
	return failure(ctx, "workspace", doing, err)
}

// failure gives an error a code, unless it says more already, or is only what became of a context that is over.
func failure(ctx context.Context, code, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", doing, context.Cause(ctx), err)
	}
	if _, decided := errors.AsType[*queue.Failure](err); decided || errors.Is(err, queue.ErrStopping) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return &queue.Failure{Code: code, Message: fmt.Sprintf("%s: %v", doing, err), Err: err}
}
