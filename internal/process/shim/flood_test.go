package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// sizeOnDisk adds up the files of a log.
func sizeOnDisk(t *testing.T, dir string) int64 {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "log*"))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, path := range all {
		if info, err := os.Stat(path); err == nil { // else dropped since
			sum += info.Size()
		}
	}
	return sum
}

func TestFloodStaysUnderTheCap(t *testing.T) {
	t.Parallel()
	const limit, flood = 4 << 20, 100 << 20
	r, _ := runtest.Start(t, "head -c 104857600 /dev/zero | tr '\\0' x; echo end", logCap(limit))
	var sum, last, most int64
	for chunk, err := range r.Log().Follow(runtest.Bound(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset < last {
			t.Fatalf("went back from %d to %d", last, chunk.Offset)
		}
		last = chunk.Offset + int64(len(chunk.Data))
		sum += int64(len(chunk.Data))
		if sum%(1<<20) < 32<<10 {
			most = max(most, sizeOnDisk(t, r.Spec().RunID))
		}
	}
	exit := runtest.Wait(t, r)
	runtest.WantCode(t, exit, 0)
	if last != flood+4 || exit.LogBytes != last || sum > last {
		t.Fatalf("followed to %d, log of %d bytes", last, exit.LogBytes)
	}
	if most = max(most, sizeOnDisk(t, r.Spec().RunID)); most > limit || most < limit/2 {
		t.Fatalf("%d bytes on disk", most)
	}
	var dropped *process.DroppedError
	if _, err := r.Log().ReadAt(make([]byte, 1), 0); !errors.As(err, &dropped) || dropped.Oldest < flood-limit {
		t.Fatalf("first byte: %v", err)
	}
	if got := runtest.Output(t, r); !strings.HasSuffix(got, "xxend\n") || len(got) != 1<<20 {
		t.Fatalf("tail of %d bytes", len(got))
	}
}
