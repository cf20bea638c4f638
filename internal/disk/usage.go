package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// blockSize is that of st_blocks, whatever the file system's own is.
const blockSize = 512

// Usage is what a tree takes of its file system, in bytes. A file with several names counts once, symbolic links aren't
// followed, and what goes away meanwhile counts or doesn't.
func Usage(ctx context.Context, path string) (int64, error) {
	type inode struct{ dev, ino uint64 }
	counted := map[inode]bool{}
	var total int64
	err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 && entry.Type().IsRegular() {
			key := inode{uint64(st.Dev), st.Ino} //nolint:unconvert,nolintlint // widths differ
			if counted[key] {
				return nil
			}
			counted[key] = true
		}
		total += st.Blocks * blockSize
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", path, err)
	}
	return total, nil
}
