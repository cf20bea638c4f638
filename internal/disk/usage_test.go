package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestUsageCountsWhatIsThereOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := usage(t, dir)
	const size = 256 << 10
	write(t, filepath.Join(dir, "deep", "in", "it"), size)
	one := usage(t, dir)
	if grown := one - empty; grown < size || grown > 2*size {
		t.Fatalf("%d bytes take %d", size, grown)
	}
	for _, err := range []error{
		os.Link(filepath.Join(dir, "deep", "in", "it"), filepath.Join(dir, "again")),
		os.Symlink("/usr", filepath.Join(dir, "elsewhere")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if two := usage(t, dir); two-one >= size {
		t.Errorf("a second name takes %d more", two-one)
	}
	if none := usage(t, filepath.Join(dir, "none")); none != 0 {
		t.Errorf("what isn't there takes %d", none)
	}
}

func TestUsageEndsWithItsContext(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := Usage(ctx, t.TempDir()); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func usage(t *testing.T, path string) int64 {
	t.Helper()
	n, err := Usage(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, make([]byte, size), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
