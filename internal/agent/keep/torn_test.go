package keep_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDirectoryThatIsNoRunAnyMoreIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.run(2*time.Hour, true, 1)
	entries, err := os.ReadDir(w.path(id))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries { // as its program may have done
		if err := os.Remove(filepath.Join(w.path(id), entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(w.path(id), "core"), make([]byte, 1<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	w.sweep(time.Hour, 0, 1)
	if _, err := os.Stat(w.path(id)); !os.IsNotExist(err) {
		t.Error("it is kept for ever", err)
	}
}
