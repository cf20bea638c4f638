package process

import "orch/internal/process/runlog"

type (
	// Log reads the output of a run, living or ended.
	Log = runlog.Log
	// Chunk is a piece of output.
	Chunk = runlog.Chunk
	// DroppedError means that the bytes at an offset were dropped, or lost.
	DroppedError = runlog.DroppedError
)
