package shim

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

// TestLogOffsets writes in any portions and compares every kept byte with what was written.
func TestLogOffsets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(t.TempDir(), "run")
		if ok, err := process.Forbid(dir); !ok || err != nil { // a reader sees an ended run
			rt.Fatal(ok, err)
		}
		limit := rapid.Int64Range(8, 200).Draw(rt, "limit")
		w, err := newLogWriter(dir, limit)
		if err != nil {
			rt.Fatal(err)
		}
		var all []byte
		for _, portion := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 60), 0, 20).Draw(rt, "portions") {
			if _, err := w.Write(portion); err != nil {
				rt.Fatal(err)
			}
			all = append(all, portion...)
			if size := sizeOnDisk(t, dir); size > limit {
				rt.Fatalf("%d bytes on disk", size)
			}
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		r, err := process.OpenRun(dir)
		if err != nil {
			rt.Fatal(err)
		}
		log := r.Log()
		size, err := log.Size()
		if err != nil || size != int64(len(all)) {
			rt.Fatalf("size %d, %v", size, err)
		}
		from := rapid.Int64Range(0, size).Draw(rt, "from")
		at := from
		for chunk, err := range log.Follow(t.Context(), from) {
			if err != nil {
				rt.Fatal(err)
			}
			if chunk.Offset < at || !bytes.Equal(chunk.Data, all[chunk.Offset:chunk.Offset+int64(len(chunk.Data))]) {
				rt.Fatalf("at %d: chunk of offset %d is wrong", at, chunk.Offset)
			}
			at = chunk.Offset + int64(len(chunk.Data))
		}
		if at != size {
			rt.Fatalf("read to %d of %d", at, size)
		}
		if _, err := log.ReadAt(make([]byte, 1), size); !errors.Is(err, io.EOF) {
			rt.Fatalf("at the end: %v", err)
		}
		n := rapid.Int64Range(0, 300).Draw(rt, "tail")
		tail, err := log.Tail(n)
		if err != nil || !bytes.HasSuffix(all, tail) || int64(len(tail)) > n {
			rt.Fatalf("tail %q, %v", tail, err)
		}
	})
}
