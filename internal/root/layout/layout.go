// Package layout says where a data root has its things, and makes the directories. Whether the root belongs to a database, and
// who may work in it, is package root's.
package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// The names of what is in a root.
const (
	Lock   = "root.lock"      // who works in it, see package root
	Marker = "orch-root.json" // which database it belongs to, see package root
	Config = "orch.yaml"
	Socket = "orch.sock"

	PG         = "pg"         // the private database
	Runs       = "runs"       // a directory for each run; only orch can enter it
	Mirrors    = "mirrors"    // orch's bare copies of the repositories
	Workspaces = "workspaces" // the agents' clones
	Checkouts  = "checkouts"  // throw-away ones, for gates and merge tests
	Homes      = "homes"      // the agents' home directories
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
	lock, err := os.OpenFile(filepath.Join(path, Lock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the root's lock: %w", err)
	}
	if err := lock.Close(); err != nil {
		return err
	}
	for _, dir := range []struct {
		name string
		mode fs.FileMode
	}{
		{Runs, 0o700}, {Mirrors, 0o700}, {Workspaces, passage}, {Checkouts, passage}, {Homes, passage},
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
		if name == Lock || name == Marker {
			return nil
		}
		if !slices.Contains([]string{Config, ".env", PG, "lost+found"}, name) {
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

// NetworkError says that the root would lie on a network filesystem.
type NetworkError struct{ Path, Kind string }

func (e *NetworkError) Error() string {
	return fmt.Sprintf("%s is on a network filesystem (%s), where file locks and syncs don't hold what orch relies on: set ORCH_ROOT to a directory on a local disk", e.Path, e.Kind)
}

// OccupiedError says that the directory holds things that aren't orch's.
type OccupiedError struct{ Path, Entry string }

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s isn't a data root, and isn't empty (%s): set ORCH_ROOT to a new or an empty directory", e.Path, e.Entry)
}
