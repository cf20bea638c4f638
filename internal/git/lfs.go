package git

import (
	"context"
	"fmt"
	"strconv"

	"orch/internal/git/gitcmd"
	"orch/internal/lfs"
)

// Pointers has the LFS pointers in the commits that are in id's history but not in base's.
func (m *Mirror) Pointers(ctx context.Context, id, base string) ([]lfs.Pointer, error) {
	objects, err := m.read(ctx, "rev-list", "--objects", "--no-object-names",
		"--filter=blob:limit="+strconv.Itoa(lfs.MaxPointer+1), "--end-of-options", id, "^"+base)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	out, err := m.git.Do(ctx, gitcmd.Call{GitDir: m.dir, Stdin: objects, Args: []string{"cat-file", "--batch"}})
	if err != nil {
		return nil, fmt.Errorf("read LFS pointers: %w", err)
	}
	return lfs.Pointers(out), nil
}
