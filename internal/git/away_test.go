package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A place that will be back isn't what is wrong with a repository.
func TestAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "text"), nil, 0o600),
		os.Mkdir(filepath.Join(dir, "mountpoint"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		filepath.Join(dir, "moved"):      true,
		filepath.Join(dir, "mountpoint"): true,
		file:                             false,
		other:                            false,
		"https://example.org/a":          false,
	} {
		if err := away(source); errors.Is(err, ErrAway) != want {
			t.Errorf("%s: %v, want away %v", source, err, want)
		}
	}
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EACCES: true, syscall.EIO: true, syscall.ESTALE: true, syscall.ENOTDIR: false, syscall.ELOOP: false,
	} {
		if got := unreachable(&fs.PathError{Op: "open", Path: "/srv", Err: errno}); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
}
