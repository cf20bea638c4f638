package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the operating system user that the server runs as. PostgreSQL refuses to be root.
type account struct {
	uid, gid uint32
	other    bool // not our own: processes have to change to it
}

// accountFor chooses who runs the cluster in data: as root the owner of an existing one, else postgres, else nobody (the
// user must be in passwd, initdb insists); otherwise ourselves.
func accountFor(data string, exists bool) (account, error) {
	self := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())} //nolint:gosec // ids of this process, never negative on Linux
	if exists {
		return ownerOf(data, self)
	}
	if self.uid != 0 {
		return self, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{uid: uint32(uid), gid: uint32(gid), other: true}, nil
	}
	return account{}, errors.New("PostgreSQL doesn't run as root, and neither a user postgres nor nobody exists: create one, or run orch as an ordinary user")
}

func ownerOf(data string, self account) (account, error) {
	info, err := os.Stat(data)
	if err != nil {
		return account{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return account{}, fmt.Errorf("%s: owner unknown", data)
	}
	switch {
	case st.Uid == self.uid && self.uid == 0:
		return account{}, fmt.Errorf("%s belongs to root, which PostgreSQL refuses to run as: give it back to the user it was made by, e.g. `chown -R postgres: %s`", data, data)
	case st.Uid == self.uid:
		return self, nil
	case self.uid != 0:
		return account{}, fmt.Errorf("%s belongs to user %d: run orch as that user or as root", data, st.Uid)
	}
	return account{uid: st.Uid, gid: st.Gid, other: true}, nil
}

// attributes are those of every program started for the cluster: a session of its own, so that the terminal's Ctrl-C
// reaches orch only, and the account's user without any supplementary group.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.other {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{}}
	}
	return attr
}

// own makes path belong to the account.
func (a account) own(path string) error {
	if !a.other {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// checkAccess asks the kernel whether the account can stand in dir and run the server program. Go changes to the directory
// after it changed the user, so that the start itself is the answer.
func (a account) checkAccess(ctx context.Context, program, dir string) error {
	if !a.other {
		return nil
	}
	err := a.try(ctx, program, dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("become user %d to run the database: %w (run orch as an ordinary user, or with CAP_SETUID and CAP_SETGID)", a.uid, err)
	case !errors.Is(err, fs.ErrPermission):
		return err
	}
	for _, d := range ancestors(dir) {
		if err := a.try(ctx, program, d); err == nil {
			continue
		}
		if d == "/" {
			return fmt.Errorf("user %d, who is to run the database, may not run %s: %w", a.uid, program, fs.ErrPermission)
		}
		return fmt.Errorf("user %d, who is to run the database, can't enter %s: choose a data root elsewhere (ORCH_ROOT, e.g. /var/lib/orch), or allow it with `chmod o+x %s`: %w",
			a.uid, d, d, fs.ErrPermission)
	}
	return err
}

func (a account) try(ctx context.Context, program, dir string) error {
	cmd := exec.CommandContext(ctx, program, "-V")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environment(), a.attributes()
	return cmd.Run()
}

// ancestors lists dir and the directories above it, the root first.
func ancestors(dir string) []string {
	all := []string{"/"}
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		all = append(all, filepath.Join(all[len(all)-1], part))
	}
	return all
}

// environment is all that the server's programs get: none of orch's secrets, and nothing that changes their behaviour.
func environment() []string {
	return []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
}
