package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPrepare_Modes(t *testing.T) {
	t.Parallel()
	passage := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		passage = 0o711
	}
	path := filepath.Join(t.TempDir(), "a", "root")
	for range 2 { // the second time over wrong modes
		if err := Prepare(path); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{
			"": passage, Runs: 0o700, Mirrors: 0o700, Workspaces: passage, Checkouts: passage, Homes: passage,
		} {
			file := filepath.Join(path, name)
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != want {
				t.Errorf("%s has mode %o instead of %o", file, info.Mode().Perm(), want)
			}
			if err := os.Chmod(file, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPrepare_Content(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		entries []string
		refused bool
	}{
		{"empty", nil, false},
		{"configured first", []string{Config, ".env"}, false},
		{"a mount point", []string{"lost+found"}, false},
		{"a root", []string{Lock, "notes.txt"}, false},
		{"a restored root", []string{Marker, "notes.txt"}, false},
		{"somebody's files", []string{Config, "thesis.tex"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			if err := os.Chmod(path, 0o750); err != nil {
				t.Fatal(err)
			}
			for _, entry := range tt.entries {
				if err := os.WriteFile(filepath.Join(path, entry), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Prepare(path)
			var occupied *OccupiedError
			if errors.As(err, &occupied) != tt.refused || !tt.refused && err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if tt.refused && info.Mode().Perm() != 0o750 {
				t.Errorf("mode changed to %o", info.Mode().Perm())
			}
		})
	}
}

func TestPrepare_FileInTheWay(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := Prepare(path); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(path, Runs)
	if err := errors.Join(os.Remove(runs), os.WriteFile(runs, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(path); err == nil {
		t.Error("prepared over a file")
	}
}

func TestNetworkFilesystem(t *testing.T) {
	t.Parallel()
	for magic, want := range map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.CEPH_SUPER_MAGIC: "Ceph",
		unix.CIFS_SUPER_MAGIC: "SMB", int64(int32(unix.CIFS_SUPER_MAGIC - 1<<32)): "SMB", // sign extended, as on 32 bits
		unix.EXT4_SUPER_MAGIC: "", unix.BTRFS_SUPER_MAGIC: "", unix.XFS_SUPER_MAGIC: "", unix.TMPFS_MAGIC: "", unix.OVERLAYFS_SUPER_MAGIC: "",
	} {
		if got := networkFilesystem(magic); got != want {
			t.Errorf("%x is %q instead of %q", magic, got, want)
		}
	}
}
