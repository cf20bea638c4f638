// Package view fills in what httpapi asks for: it puts what the stores know of tasks, jobs, runs and the queue into the
// API's words, and what the API was asked into theirs.
package view

import (
	"context"

	"github.com/google/uuid"

	"orch/internal/agent"
	"orch/internal/agent/usage"
	"orch/internal/app/catalog"
	"orch/internal/app/place"
	"orch/internal/forge"
	"orch/internal/merge/lease"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/pause"
	"orch/internal/queue/tally"
	"orch/internal/root"
	"orch/internal/task"
)

// Sources are what is looked at; all of them are needed.
type Sources struct {
	Catalog  *catalog.Catalog
	Forge    forge.Forge
	Jobs     *queue.Queue
	Overview *overview.Reader
	Pauses   *pause.Store
	Tally    *tally.Store
	Tasks    *task.Store
	Runs     *agent.Runs
	Usage    *usage.Store
	Leases   *lease.Store
	Places   *place.Places
	// Sighting looks up a data root; nil = none is known.
	Sighting func(ctx context.Context, id uuid.UUID) (root.Sighted, bool, error)
	Root     uuid.UUID // data root of this server; tasks with a repository of their own are done there
}
