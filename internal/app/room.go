package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"orch/internal/disk"
	"orch/internal/queue"
)

const (
	// roomAgain is when a job that waits for room asks again.
	roomAgain = 30 * time.Second
	// leastFiles is how many more files there must be for a run to be begun.
	leastFiles = 10_000
)

// room keeps runs from being begun on a disk that is nearly full.
type room struct {
	dirs  []string
	least int64 // bytes; 0: never asked
	log   *slog.Logger

	mu   sync.Mutex
	full string // directory without room, for one line in the log
}

// check answers a *queue.SnoozeError when there is too little room.
func (r *room) check(ctx context.Context) error {
	if r.least <= 0 {
		return nil
	}
	full := ""
	var left disk.Space
	for _, dir := range r.dirs {
		space, err := disk.Free(dir)
		if err != nil {
			return err
		}
		if space.Bytes < r.least || space.Files < leastFiles {
			full, left = dir, space
		}
	}
	r.mu.Lock()
	before := r.full
	r.full = full
	r.mu.Unlock()
	switch {
	case full != "" && full != before:
		r.log.WarnContext(ctx, "too little room on the disk, runs wait", slog.String("dir", full), slog.Int64("free_bytes", left.Bytes),
			slog.Int64("least_bytes", r.least), slog.Int64("free_files", left.Files))
	case full == "" && before != "":
		r.log.InfoContext(ctx, "room on the disk again", slog.String("dir", before))
	}
	if full != "" {
		return &queue.SnoozeError{After: roomAgain, WaitingFor: "disk_space"}
	}
	return nil
}
