package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// What names a directory as the run's cgroup may be written by others: its processes would be ended.
func TestDirectoryThatIsNoCgroupIsNotBelieved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), name("run"))
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, procs), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Of("run", path); got == path {
		t.Error("it is believed")
	}
}
