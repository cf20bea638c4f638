package lifespan_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"orch/internal/lifespan"
)

// TestMustStart ends the lifespan with a service that never got ready, and restarts one that did.
func TestMustStart(t *testing.T) {
	t.Parallel()
	for _, wasReady := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := lifespan.New(lifespan.Config{}, lifespan.Service{Name: "database", MustStart: true, Run: func(_ context.Context, ready func()) error {
				if wasReady {
					ready()
				}
				return errBroken
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := s.Run(ctx); errors.Is(err, errBroken) == wasReady {
				t.Errorf("was ready %v: Run = %v", wasReady, err)
			}
			if restarts := status(t, s, "database").Restarts; (restarts > 0) != wasReady {
				t.Errorf("was ready %v: %d restarts", wasReady, restarts)
			}
		})
	}
}
