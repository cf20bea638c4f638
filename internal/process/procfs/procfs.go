// Package procfs reads from /proc which processes there are, and signals exactly those that it has seen.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxRead bounds what is read of one process's environment or arguments.
const maxRead = 4 << 20

// errBadStat means that the kernel's answer isn't understood.
var errBadStat = errors.New("unexpected format of /proc/<pid>/stat")

// Stat is what /proc says about a process.
type Stat struct {
	PID, Parent, Group, Session int
	// Started is the start time in clock ticks after the boot.
	Started int64
	state   byte
}

// Zombie reports whether the process has ended and was not reaped yet.
func (s Stat) Zombie() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// Stopped reports whether the process stands still, by a signal or for a debugger.
func (s Stat) Stopped() bool { return s.state == 'T' || s.state == 't' }

// Read looks at one process; the error is fs.ErrNotExist or ESRCH when it is gone.
func Read(pid int) (Stat, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, fmt.Errorf("read process status: %w", err)
	}
	return parseStat(pid, raw)
}

// parseStat reads one line of /proc/<pid>/stat. The command's name may hold anything, so counting starts at the last parenthesis.
func parseStat(pid int, raw []byte) (Stat, error) {
	const ppid, group, session, started = 1, 2, 3, 19 // fields after the name
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return Stat{}, errBadStat
	}
	fields := bytes.Fields(raw[end+1:])
	if len(fields) <= started || len(fields[0]) != 1 {
		return Stat{}, errBadStat
	}
	st := Stat{PID: pid, state: fields[0][0]}
	for at, into := range map[int]*int{ppid: &st.Parent, group: &st.Group, session: &st.Session} {
		n, err := strconv.Atoi(string(fields[at]))
		if err != nil {
			return Stat{}, errBadStat
		}
		*into = n
	}
	ticks, err := strconv.ParseInt(string(fields[started]), 10, 64)
	if err != nil {
		return Stat{}, errBadStat
	}
	st.Started = ticks
	return st, nil
}

// All lists what /proc shows. Those that vanish meanwhile are left out.
func All() ([]Stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := Read(pid); err == nil {
			all = append(all, st)
		}
	}
	return all, nil
}

// Descendants picks the living ones below pid.
func Descendants(all []Stat, pid int) []Stat {
	children := make(map[int][]Stat, len(all))
	for _, st := range all {
		children[st.Parent] = append(children[st.Parent], st)
	}
	var found []Stat
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			queue = append(queue, child.PID)
			if !child.Zombie() {
				found = append(found, child)
			}
		}
	}
	return found
}

// HasEnv reports whether the environment that a process was started with has the entry NAME=value.
func HasEnv(pid int, entry string) bool {
	has, err := lists(pid, "environ", func(one string) bool { return one == entry })
	return err == nil && has
}

// HasArg reports whether a process was started with an argument.
func HasArg(pid int, arg string) bool {
	has, err := lists(pid, "cmdline", func(one string) bool { return one == arg })
	return err == nil && has
}

// HasPath reports whether a process was started with the path of something of that name as an argument. Its error is
// fs.ErrNotExist or unix.ESRCH when there is no such process any more.
func HasPath(pid int, name string) (bool, error) {
	return lists(pid, "cmdline", func(one string) bool { return filepath.Base(one) == name })
}

func lists(pid int, name string, wanted func(string) bool) (bool, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/" + name)
	if err != nil {
		return false, fmt.Errorf("read process %d: %w", pid, err)
	}
	defer func() { _ = f.Close() }()
	all, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return false, fmt.Errorf("read process %d: %w", pid, err)
	}
	for one := range bytes.SplitSeq(all, []byte{0}) {
		if wanted(string(one)) {
			return true, nil
		}
	}
	return false, nil
}

// Signal reaches exactly the process that st describes, never a later owner of its pid.
func Signal(st Stat, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(st.PID, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", st.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	now, err := Read(st.PID)
	if err != nil || now.Started != st.Started {
		return fmt.Errorf("signal process %d: %w", st.PID, unix.ESRCH)
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", st.PID, err)
	}
	return nil
}
