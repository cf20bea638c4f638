package runlog_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/process/runlog"
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

// ended is the log of a run that has ended.
func ended(dir string) *runlog.Log { return runlog.Open(dir, func() bool { return true }) }

// TestLogOffsets writes in any portions and compares every kept byte with what was written.
func TestLogOffsets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		limit := rapid.Int64Range(8, 200).Draw(rt, "limit")
		w, err := runlog.NewWriter(dir, limit)
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
		log := ended(dir)
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

// numbered is output of which each part tells where it belongs.
func numbered(from, to int64) []byte {
	var out []byte
	for at := from; at < to; at++ {
		out = append(out, byte('a'+at%23))
	}
	return out
}

func write(t *testing.T, w *runlog.Writer, from, to int64) {
	t.Helper()
	for at := from; at < to; at += 10_000 {
		if _, err := w.Write(numbered(at, min(at+10_000, to))); err != nil {
			t.Fatal(err)
		}
	}
}

// read checks that whatever is there is in its place, and gives the holes.
func read(t *testing.T, dir string) (holes [][2]int64, size int64) {
	t.Helper()
	for chunk, err := range ended(dir).Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset != size {
			holes = append(holes, [2]int64{size, chunk.Offset})
		}
		size = chunk.Offset + int64(len(chunk.Data))
		if !bytes.Equal(chunk.Data, numbered(chunk.Offset, size)) {
			t.Fatalf("wrong bytes at %d", chunk.Offset)
		}
	}
	return holes, size
}

func newWriter(t *testing.T, dir string, limit int64) *runlog.Writer {
	t.Helper()
	w, err := runlog.NewWriter(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const mib = 1 << 20

func TestLogGoesOnWhenThereIsRoomAgain(t *testing.T) {
	t.Parallel()
	dir := runtest.SmallDisk(t, mib)
	w := newWriter(t, dir, 100*mib)
	write(t, w, 0, 200_000)
	free := runtest.Fill(t, dir)
	write(t, w, 200_000, 300_000)
	if !w.Behind() || w.Lost() != 0 {
		t.Fatalf("behind %v, lost %d", w.Behind(), w.Lost())
	}
	free()
	w.Retry()
	write(t, w, 300_000, 310_000)
	if w.Behind() {
		t.Fatal("still behind")
	}
	free = runtest.Fill(t, dir)
	write(t, w, 310_000, 1_310_000) // more than is kept
	free()
	w.Retry()
	write(t, w, 1_310_000, 1_400_000)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	holes, size := read(t, dir)
	if size != 1_400_000 || w.Size() != size || len(holes) != 1 || holes[0][1]-holes[0][0] != w.Lost() || w.Lost() < 500_000 {
		t.Fatalf("holes %v, size %d of %d, lost %d", holes, size, w.Size(), w.Lost())
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".room-*")); err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}

func TestLastOutputSurvivesAFullDisk(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int64{"nothing written before": 0, "something written before": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runtest.SmallDisk(t, mib)
			w := newWriter(t, dir, 100*mib)
			write(t, w, 0, before)
			runtest.Fill(t, dir)
			write(t, w, before, 1_000_000)
			if err := w.Close(); err == nil {
				t.Fatal("no word of what was lost")
			}
			holes, size := read(t, dir)
			if size != 1_000_000 || w.Size() != size || len(holes) != 1 || holes[0][1]-holes[0][0] != w.Lost() {
				t.Fatalf("holes %v, size %d of %d, lost %d", holes, size, w.Size(), w.Lost())
			}
			if kept := size - holes[0][1]; kept < 60_000 {
				t.Fatalf("%d bytes of the end", kept)
			}
		})
	}
}

// TestLogWithAndWithoutRoom takes the room away and gives it back at any time: whatever is there is in its place, and
// what isn't is counted.
func TestLogWithAndWithoutRoom(t *testing.T) {
	t.Parallel()
	disk := runtest.SmallDisk(t, 2*mib)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(disk, "run") //nolint:usetesting // on that disk
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		w := newWriter(t, dir, rapid.Int64Range(1, 8).Draw(rt, "limit")*128<<10)
		var free func()
		var size int64
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch next := size + rapid.Int64Range(1, 200_000).Draw(rt, "bytes"); {
			case free == nil && rapid.Bool().Draw(rt, "fill"):
				free = runtest.Fill(t, disk)
			case free != nil && rapid.Bool().Draw(rt, "free"):
				free()
				free = nil
				w.Retry()
				if w.Behind() {
					rt.Fatal("behind although there is room")
				}
			default:
				write(t, w, size, next)
				size = next
			}
		}
		if err := w.Close(); err != nil && free == nil {
			rt.Fatal(err)
		}
		if free != nil {
			free()
		}
		holes, got := read(t, dir)
		if got != size || w.Size() != size {
			rt.Fatalf("size %d, read to %d of %d", w.Size(), got, size)
		}
		for _, hole := range holes {
			if hole[0] > 0 && hole[1]-hole[0] > w.Lost() { // at the beginning there is also what was dropped
				rt.Fatalf("hole %v, lost %d", hole, w.Lost())
			}
		}
	})
}
