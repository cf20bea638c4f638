package root

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// The directories of a root.
const (
	pgDir         = "pg"
	runsDir       = "runs"
	mirrorsDir    = "mirrors"
	workspacesDir = "workspaces"
	checkoutsDir  = "checkouts"
	homesDir      = "homes"
)

// Prepare makes the data root at path with its directories, so that the private database can start in it. It may be
// called again, and by several processes at once. It refuses a network filesystem, and a directory that holds other
// things: modes are set here, and nobody wants those of /tmp changed by a slip of the pen.
func Prepare(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("prepare the data root: %w", err)
	}
	if err := prepare(path); err != nil {
		return fmt.Errorf("prepare the data root: %w", err)
	}
	return nil
}

func prepare(path string) error {
	if err := checkFilesystem(path); err != nil {
		return err
	}
	// As root, the database and agents run as users of their own: they pass through, but can't list.
	passage := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		passage = 0o711
	}
	if err := os.MkdirAll(path, passage); err != nil {
		return err
	}
	if err := checkContent(path); err != nil {
		return err
	}
	if err := os.Chmod(path, passage); err != nil {
		return err
	}
	// First the lock: from here on the directory counts as a root.
	l, err := openLock(path, os.O_CREATE)
	if err != nil {
		return err
	}
	if err := l.file.Close(); err != nil {
		return err
	}
	for _, dir := range []struct {
		name string
		mode fs.FileMode
	}{
		{runsDir, 0o700}, {mirrorsDir, 0o700}, {workspacesDir, passage}, {checkoutsDir, passage}, {homesDir, passage},
	} {
		if err := makeDir(filepath.Join(path, dir.name), dir.mode); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory with exactly that mode, whatever the umask and whoever made it before.
func makeDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is in the way: it is to be a directory", path)
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	return os.Chmod(path, mode)
}

// checkContent accepts an earlier root, and what a person may put into a directory that is to become one.
func checkContent(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	stranger := ""
	for _, entry := range entries {
		name := entry.Name()
		if name == lockName || name == markerName {
			return nil
		}
		if !slices.Contains([]string{configName, ".env", pgDir, "lost+found"}, name) {
			stranger = name
		}
	}
	if stranger != "" {
		return &OccupiedError{Path: path, Entry: stranger}
	}
	return nil
}

// checkFilesystem looks at the nearest directory that exists, since the root isn't made on a network filesystem at all.
func checkFilesystem(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return fmt.Errorf("examine the filesystem of %s: %w", dir, err)
		}
		if kind := networkFilesystem(int64(st.Type)); kind != "" { //nolint:unconvert,nolintlint // its width differs between architectures
			return &NetworkError{Path: path, Kind: kind}
		}
		return nil
	}
}

// networkFilesystem names the filesystem of that magic number if it is one of those that other hosts may write too.
func networkFilesystem(magic int64) string {
	switch uint32(magic) { //nolint:gosec // the kernel's numbers have 32 bits, some architectures extend their sign
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return "SMB"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.NCP_SUPER_MAGIC:
		return "NCP"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x47504653:
		return "GPFS"
	case 0x19830326:
		return "BeeGFS"
	}
	return ""
}
