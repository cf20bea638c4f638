package app

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"orch/internal/queue"
)

func TestRunsWaitForRoom(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := &room{dirs: []string{t.TempDir()}, least: math.MaxInt64, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		var wait *queue.SnoozeError
		if err := r.check(t.Context()); !errors.As(err, &wait) || wait.WaitingFor != "disk_space" {
			t.Fatal(err)
		}
	}
	r.least = 1
	for range 2 {
		if err := r.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d lines: %s", lines, &log)
	}
	r.dirs, r.least = []string{"/nowhere"}, 0
	if err := r.check(t.Context()); err != nil {
		t.Errorf("switched off: %v", err)
	}
}
