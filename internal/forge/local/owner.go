package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"orch/internal/forge"
	"orch/internal/forge/local/checkout"
	"orch/internal/forge/local/problem"
)

// openOwn is open for what writes into the repository or runs programs that its configuration names. It refuses a
// repository of another user: that user's programs would run with orch's rights, root's perhaps, and what orch
// leaves there would be files that its owner can't write to any more.
func (l *Local) openOwn(location string) (*repository, error) {
	r, err := l.open(location)
	if err != nil {
		return nil, err
	}
	return r, l.owned(r.path, r.gitDir)
}

// ownCheckouts is openOwn's rule for the work trees that a landing on branch touches; core.worktree may put the main
// one anywhere.
func (l *Local) ownCheckouts(r *repository, all []checkout.Checkout, branch string) error {
	for _, c := range all {
		if c.GitDir != r.gitDir && c.Branch != "refs/heads/"+branch {
			continue
		}
		if err := l.owned(c.WorkTree, c.GitDir); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) owned(paths ...string) error {
	for _, path := range paths {
		uid, err := l.owner(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a work tree that is gone: git says so
		}
		if err != nil {
			return fmt.Errorf("find the owner of %s: %w", path, err)
		}
		if uid != l.euid {
			name := userName(uid)
			return problem.New(forge.CodeForeign, "run orch as "+name, "%s belongs to %s, and orch runs as %s", path, name, userName(l.euid))
		}
	}
	return nil
}

// ownerOf is the user id that a file or directory belongs to.
func ownerOf(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("the file system doesn't say")
	}
	return int(st.Uid), nil
}

func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "user " + strconv.Itoa(uid)
	}
	return u.Username
}
