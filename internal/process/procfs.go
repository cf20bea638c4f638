package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Mark is the name of the environment variable that carries the run's id in the program and all its descendants.
const Mark = "ORCH_RUN"

// maxEnviron bounds what is read of one process's environment.
const maxEnviron = 4 << 20

// errBadStat means that the kernel's answer isn't understood.
var errBadStat = errors.New("unexpected format of /proc/<pid>/stat")

type stat struct {
	pid, ppid, group, session int
	state                     byte
	started                   int64
}

func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, fmt.Errorf("read process status: %w", err)
	}
	return parseStat(pid, raw)
}

// parseStat reads one line of /proc/<pid>/stat. The command's name may hold anything, so counting starts at the last parenthesis.
func parseStat(pid int, raw []byte) (stat, error) {
	const ppid, group, session, started = 1, 2, 3, 19 // fields after the name
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return stat{}, errBadStat
	}
	fields := bytes.Fields(raw[end+1:])
	if len(fields) <= started || len(fields[0]) != 1 {
		return stat{}, errBadStat
	}
	st := stat{pid: pid, state: fields[0][0]}
	for at, into := range map[int]*int{ppid: &st.ppid, group: &st.group, session: &st.session} {
		n, err := strconv.Atoi(string(fields[at]))
		if err != nil {
			return stat{}, errBadStat
		}
		*into = n
	}
	ticks, err := strconv.ParseInt(string(fields[started]), 10, 64)
	if err != nil {
		return stat{}, errBadStat
	}
	st.started = ticks
	return st, nil
}

// processes lists what /proc shows. Those that vanish meanwhile are left out.
func processes() ([]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			all = append(all, st)
		}
	}
	return all, nil
}

// descendants picks the living ones below pid.
func descendants(all []stat, pid int) []stat {
	children := make(map[int][]stat, len(all))
	for _, st := range all {
		children[st.ppid] = append(children[st.ppid], st)
	}
	var found []stat
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			queue = append(queue, child.pid)
			if !child.zombie() {
				found = append(found, child)
			}
		}
	}
	return found
}

// marked reports whether the environment that a process was started with carries the run's id.
func marked(pid int, runID string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	env, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil {
		return false
	}
	want := []byte(Mark + "=" + runID)
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, want) {
			return true
		}
	}
	return false
}

// sendSignal reaches exactly the process that st describes, never a later owner of its pid.
func sendSignal(st stat, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(st.pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", st.pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	now, err := readStat(st.pid)
	if err != nil || now.started != st.started {
		return fmt.Errorf("signal process %d: %w", st.pid, unix.ESRCH)
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", st.pid, err)
	}
	return nil
}
