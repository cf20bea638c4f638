package remote

import (
	"errors"

	"orch/internal/cli/exit"
	"orch/internal/client"
)

// refused takes the API's decoration off a refusal: on the command line its sentence is enough.
func refused(err error) error {
	var problem *client.ProblemError
	if errors.As(err, &problem) && problem.Status < 500 {
		return exit.With(exit.Failed, errors.New(problem.Detail))
	}
	return err
}

func value[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
