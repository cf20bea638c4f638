package gitcmd

import "syscall"

// SetFree makes every filesystem have so many free blocks.
func (g *Git) SetFree(blocks uint64) {
	g.statfs = func(dir string, fs *syscall.Statfs_t) error {
		err := syscall.Statfs(dir, fs)
		fs.Blocks, fs.Bavail = max(fs.Blocks, 1000), blocks
		return err
	}
}
