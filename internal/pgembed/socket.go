package pgembed

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	port       = 5432
	socketName = ".s.PGSQL.5432"
	// sun_path has 108 bytes, the last of them a zero.
	maxSocketPath = 107
)

// socketDir returns where the server's socket goes: dir/run, or a short private directory named for dir when the path
// would not fit a socket address. Other processes read it from postmaster.pid instead of computing it.
func socketDir(dir string) string {
	run := filepath.Join(dir, "run")
	if fitsSocket(run) {
		return run
	}
	sum := sha256.Sum256([]byte(dir))
	name := fmt.Sprintf("orch-pg-%d-%x", os.Geteuid(), sum[:6])
	bases := []string{os.Getenv("XDG_RUNTIME_DIR")}
	if os.Geteuid() == 0 {
		bases = []string{"/run"}
	}
	for _, base := range append(bases, os.TempDir()) {
		info, err := os.Stat(base) //nolint:gosec // the environment is the operator's
		if err == nil && info.IsDir() && filepath.IsAbs(base) && fitsSocket(filepath.Join(base, name)) {
			return filepath.Join(base, name)
		}
	}
	return "/tmp/" + name
}

func fitsSocket(dir string) bool { return len(dir)+len("/"+socketName) <= maxSocketPath }

// makeSocketDir makes the directory that guards the socket: only its owner can enter, which is all the authentication
// there is. Someone else's directory of that name (it may be in /tmp) is refused, as is a link.
func makeSocketDir(dir string, a account) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return fmt.Errorf("%s is in the way: it is to be a directory for the database's socket", dir)
	}
	if st.Uid != a.uid && int64(st.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("%s belongs to user %d and can't hold the database's socket: remove it", dir, st.Uid)
	}
	if err := a.own(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700) //nolint:gosec // a directory needs its x
}
