package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"orch/internal/process/runtest"
)

func TestFollowSeesOutputAsItComes(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, "echo first; until [ -e go ]; do sleep 0.01; done; echo last")
	var got []byte
	for chunk, err := range r.Log().Follow(runtest.Bound(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, chunk.Data...)
		if string(got) == "first\n" {
			if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if string(got) != "first\nlast\n" {
		t.Fatalf("%q", got)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "echo first; exec sleep 1000")
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for _, err := range r.Log().Follow(ctx, 0) {
		last = err
		cancel(enough)
	}
	if !errors.Is(last, enough) {
		t.Fatal(last)
	}
}
