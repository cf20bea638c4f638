package task

import (
	"context"
	"fmt"

	"orch/internal/task/flow"
)

// Catalog knows the pipeline of each task, with what the task overrides. It may change while orch runs.
type Catalog interface {
	Pipeline(ctx context.Context, t Task) (flow.Pipeline, error)
}

// Pipelines is a Catalog of fixed pipelines by name.
type Pipelines []flow.Pipeline

// Pipeline returns the pipeline that the task names.
func (p Pipelines) Pipeline(_ context.Context, t Task) (flow.Pipeline, error) {
	for _, pipeline := range p {
		if pipeline.Name == t.Pipeline {
			return pipeline, nil
		}
	}
	return flow.Pipeline{}, fmt.Errorf("%w %q", ErrUnknownPipeline, t.Pipeline)
}
