package tempdir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"orch/internal/process/tempdir"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "empty" {
		if err := tempdir.Empty(os.Args[2]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// emptyAsNobody empties as a user whom modes bind. The directory must be in reach of everybody.
func emptyAsNobody(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "empty", dir)
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, nobody, nobody)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestClosedDirectoriesAreEmptied(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "tempdir") //nolint:usetesting // the parents of t.TempDir are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	outside := filepath.Join(t.TempDir(), "outside")
	closed := filepath.Join(dir, "cache", "module@v1", "deep")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o400),
		os.MkdirAll(closed, 0o700),
		os.WriteFile(filepath.Join(closed, "file"), nil, 0o400),
		os.Symlink(outside, filepath.Join(closed, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")),
		os.Chmod(closed, 0o500),
		os.Chmod(filepath.Dir(closed), 0),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	emptyAsNobody(t, dir)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("outside: %v, %v", info, err)
	}
}

func TestNoDirectoryIsEmpty(t *testing.T) {
	t.Parallel()
	if err := tempdir.Empty(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Error(err)
	}
}
