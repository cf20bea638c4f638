package lifespan_test

import (
	"errors"
	"strings"
	"testing"

	"orch/internal/lifespan"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	var log logBuffer
	if err := lifespan.Guard(nil, "work", func() error { return errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("error of fn: %v", err)
	}
	err := lifespan.Guard(log.logger(), "repair", func() error { panic(errBroken) })
	panicked, ok := errors.AsType[*lifespan.PanicError](err)
	if !ok || !errors.Is(err, errBroken) || err.Error() != "repair panicked: broken" {
		t.Fatalf("panic became %v", err)
	}
	if !strings.Contains(string(panicked.Stack), "guard_test.go") || !strings.Contains(log.String(), "guard_test.go") {
		t.Error("the stack is missing")
	}
	err = lifespan.Guard(nil, "index", func() error {
		_ = []int{1}[len(log.String())]
		return nil
	})
	if _, ok := errors.AsType[*lifespan.PanicError](err); !ok {
		t.Errorf("run-time panic became %v", err)
	}
}
