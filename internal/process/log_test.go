package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sizeOnDisk adds up the files of a log.
func sizeOnDisk(t *testing.T, dir string) int64 {
	t.Helper()
	all, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, s := range all {
		if info, err := os.Stat(s.path); err == nil { // else dropped since
			sum += info.Size()
		}
	}
	return sum
}

func TestFloodStaysUnderTheCap(t *testing.T) {
	t.Parallel()
	const limit, flood = 4 << 20, 100 << 20
	r, _ := start(t, "head -c 104857600 /dev/zero | tr '\\0' x; echo end", logCap(limit))
	var sum, last, most int64
	for chunk, err := range r.Log().Follow(bound(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset < last {
			t.Fatalf("went back from %d to %d", last, chunk.Offset)
		}
		last = chunk.Offset + int64(len(chunk.Data))
		sum += int64(len(chunk.Data))
		if sum%(1<<20) < chunkSize {
			most = max(most, sizeOnDisk(t, r.dir))
		}
	}
	exit := wait(t, r)
	wantCode(t, exit, 0)
	if last != flood+4 || exit.LogBytes != last || sum > last {
		t.Fatalf("followed to %d, log of %d bytes", last, exit.LogBytes)
	}
	if most = max(most, sizeOnDisk(t, r.dir)); most > limit || most < limit/2 {
		t.Fatalf("%d bytes on disk", most)
	}
	var dropped *DroppedError
	if _, err := r.Log().ReadAt(make([]byte, 1), 0); !errors.As(err, &dropped) || dropped.Oldest < flood-limit {
		t.Fatalf("first byte: %v", err)
	}
	if got := output(t, r); !strings.HasSuffix(got, "xxend\n") || len(got) != 1<<20 {
		t.Fatalf("tail of %d bytes", len(got))
	}
}

func TestFollowSeesOutputAsItComes(t *testing.T) {
	t.Parallel()
	r, work := start(t, "echo first; until [ -e go ]; do sleep 0.01; done; echo last")
	var got []byte
	for chunk, err := range r.Log().Follow(bound(t), 0) {
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
	r, _ := start(t, "echo first; exec sleep 1000")
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

// TestLogOffsets writes in any portions and compares every kept byte with what was written.
func TestLogOffsets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
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
		log := &Log{dir: dir}
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
