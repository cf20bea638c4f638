// Package disk tells how much room there is.
package disk

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Space is what a file system has left for this process.
type Space struct {
	Bytes int64
	// Files is how many more files there can be.
	Files int64
}

// Free asks the file system that holds path.
func Free(path string) (Space, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return Space{}, fmt.Errorf("measure the file system of %s: %w", path, err)
		}
	}
	space := Space{Bytes: whole(st.Bavail * uint64(max(st.Bsize, 0))), Files: whole(st.Ffree)}
	if st.Files == 0 { // it makes files as it needs them
		space.Files = math.MaxInt64
	}
	return space, nil
}

func whole(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
