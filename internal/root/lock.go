package root

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"orch/internal/root/layout"
)

// lock is the open root.lock. It belongs to this opening of the file, so two in one process exclude each other too.
type lock struct {
	file *os.File
	in   bool // it has entered
}

// openLock opens root.lock; flag is os.O_CREATE to make it where it lacks, else 0.
func openLock(path string, flag int) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(path, layout.Lock), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the root's lock: %w", err)
	}
	return &lock{file: f}, nil
}

// try takes the lock in the given way (LOCK_SH, LOCK_EX) unless others hold it in a way that excludes it, which is ErrInUse.
func (l *lock) try(how int) error {
	for {
		err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrInUse
		case err != nil:
			return fmt.Errorf("lock %s: %w", l.file.Name(), err)
		default:
			return nil
		}
	}
}

// unlock lets go by name: closing alone would wait for copies that a child being started holds until its exec.
func (l *lock) unlock() error {
	return unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
}

func (l *lock) close() error {
	_ = unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK}) // closed in any case
	return errors.Join(l.unlock(), l.file.Close())
}

// enter says to others that a start succeeded in this directory. Nobody ever waits for this second, shared lock of the same
// file, which, unlike the first, can be looked for without taking it. A filesystem without it makes others more careful than they need be.
func (l *lock) enter() {
	l.in = unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}) == nil
}

// entered says whether anyone else works in this directory, other containers included.
func (l *lock) entered() bool {
	if l == nil {
		return false
	}
	others, err := l.others()
	return err == nil && others
}

// deserted says whether nobody else does, for certain.
func (l *lock) deserted() bool {
	if !l.in {
		return false
	}
	others, err := l.others()
	return err == nil && !others
}

func (l *lock) others() (bool, error) {
	found := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, &found)
	return found.Type != unix.F_UNLCK, err
}

// Holder is a process that has the root's lock.
type Holder struct {
	PID       int    `json:"pid"`
	Program   string `json:"program"`
	Exclusive bool   `json:"exclusive"`
}

func (h Holder) String() string {
	if h.Program == "" { // of another user, or it has ended
		return fmt.Sprintf("pid %d", h.PID)
	}
	return fmt.Sprintf("%s with pid %d", h.Program, h.PID)
}

// holders returns who holds the root's lock as far as the kernel tells: not those of other containers, nor of any on a
// filesystem whose files have another device there than in stat.
func holders(path string) []Holder {
	var st unix.Stat_t
	table, err := os.Open("/proc/locks")
	if err != nil || unix.Stat(filepath.Join(path, layout.Lock), &st) != nil {
		return nil
	}
	defer table.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	var found []Holder
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// 1: FLOCK  ADVISORY  READ 1234 fe:00:5308562 0 EOF; one that waits has "->" after the number
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid <= 0 || slices.ContainsFunc(found, func(h Holder) bool { return h.PID == pid }) {
			continue
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
		found = append(found, Holder{PID: pid, Program: strings.TrimSpace(string(name)), Exclusive: f[3] == "WRITE"})
	}
	return found
}

// named adds to ErrInUse who it is.
func named(err error, path string) error {
	if !errors.Is(err, ErrInUse) {
		return err
	}
	var who []string
	for _, h := range holders(path) {
		who = append(who, h.String())
	}
	if who == nil {
		return fmt.Errorf("%w: try again when it is done", err)
	}
	return fmt.Errorf("%w: %s; try again when it is done", err, strings.Join(who, ", "))
}
