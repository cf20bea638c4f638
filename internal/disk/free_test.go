package disk_test

import (
	"path/filepath"
	"testing"

	"orch/internal/disk"
)

func TestFree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	space, err := disk.Free(dir)
	if err != nil || space.Bytes <= 0 || space.Files <= 0 {
		t.Errorf("%+v, %v", space, err)
	}
	if _, err := disk.Free(filepath.Join(dir, "missing")); err == nil {
		t.Error("measured a directory that isn't there")
	}
}
