package contact_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process/contact"
)

// Whatever somebody leaves in the place of the file, neither orch nor the shims wait for it.
func TestPipeInPlaceOfTheFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "contact"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contact.Read(dir); err == nil {
		t.Error("read a pipe")
	}
	if err := contact.Write(dir, 7); err != nil {
		t.Fatal(err)
	}
	if at, err := contact.Read(dir); err != nil || at != 7 {
		t.Error(at, err)
	}
}
