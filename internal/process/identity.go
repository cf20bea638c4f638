package process

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/procfs"
)

// Identity names one process for ever.
type Identity struct {
	Host   string `json:"host"`
	BootID string `json:"boot_id"`
	// PIDNamespace is the number of the namespace and, in any but the machine's first one, the start time of its first process:
	// the kernel gives the number of one that has ended to the next, such as that of the same container, started again.
	PIDNamespace string `json:"pid_namespace"`
	PID          int    `json:"pid"`
	// StartedAt is the start time in clock ticks after the boot.
	StartedAt int64 `json:"started_at"`
}

// IsZero reports whether no process is named.
func (id Identity) IsZero() bool { return id == Identity{} }

// Started is when the process was started, in nanoseconds of CLOCK_BOOTTIME.
func (id Identity) Started() int64 {
	const perSecond = 100 // clock ticks, on every machine that Go knows
	return id.StartedAt * int64(time.Second/perSecond)
}

// named reports whether it can be a process's.
func (id Identity) named() bool { return id.PID > 0 && id.PID <= math.MaxInt32 && id.BootID != "" }

// Self names the calling process.
func Self() (Identity, error) { return IdentityOf(os.Getpid()) }

// sees reports whether the other process is, or was, of the same boot and pid namespace.
func (id Identity) sees(other Identity) bool {
	return id.BootID == other.BootID && id.PIDNamespace == other.PIDNamespace
}

// Outlived reports whether all that ran where the other process was has ended: its pid namespace was of this boot, and has
// had to give its number to the one of id.
func (id Identity) Outlived(other Identity) bool {
	number, first, known := strings.Cut(id.PIDNamespace, firstAt)
	otherNumber, otherFirst, otherKnown := strings.Cut(other.PIDNamespace, firstAt)
	return id.BootID == other.BootID && known && otherKnown && number == otherNumber && first != otherFirst
}

// IdentityOf names a process of the caller's own pid namespace.
func IdentityOf(pid int) (Identity, error) {
	id, err := here()
	if err != nil {
		return Identity{}, err
	}
	st, err := procfs.Read(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	id.PID, id.StartedAt = pid, st.Started
	return id, nil
}

const (
	machineNamespace = "pid:[4026531836]" // the first one has this number under every kernel, and ends with the boot
	firstAt          = "@"                // between the number of another one and the start time of its first process
)

// pidNamespace names the namespace that this process is in.
func pidNamespace() (string, error) {
	number, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || number == machineNamespace {
		return number, err
	}
	first, err := procfs.Read(1)
	if err != nil {
		return number, nil //nolint:nilerr // hidden by the mount's options, from every process of this user
	}
	return number + firstAt + strconv.FormatInt(first.Started, 10), nil
}

// ErrForeignProc means that /proc shows another pid namespace than the caller's: every pid in it is somebody else's here.
var ErrForeignProc = errors.New("/proc is another pid namespace's: mount one for this namespace, as unshare does with --mount-proc")

// here is what all processes that this one can see have in common. ErrForeignProc: it can't be said which those are.
func here() (Identity, error) {
	if self, err := os.Readlink("/proc/self"); err == nil && self != strconv.Itoa(os.Getpid()) {
		return Identity{}, ErrForeignProc
	}
	host, err := os.Hostname()
	if err != nil {
		return Identity{}, fmt.Errorf("read the host name: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, fmt.Errorf("read the boot id: %w", err)
	}
	namespace, err := pidNamespace()
	if err != nil {
		return Identity{}, fmt.Errorf("read the pid namespace: %w", err)
	}
	return Identity{Host: host, BootID: strings.TrimSpace(string(boot)), PIDNamespace: namespace}, nil
}

// Verdict is what can be said about a process.
type Verdict string

// The three verdicts. Unknown is never to be taken for Dead.
const (
	Alive   Verdict = "alive"
	Dead    Verdict = "dead"
	Unknown Verdict = "unknown"
)

// Probe says whether a process lives. It is Unknown in another pid namespace and on another host, and Dead when the
// host has booted since or the other namespace has ended for certain. A boot id is one machine's, so within a boot the host name, which can change under a running
// system, says nothing. A zombie is dead, and so is a process whose pid has a new owner.
func Probe(id Identity) Verdict {
	self, err := here()
	if err != nil {
		return Unknown
	}
	return probe(self, id)
}

func probe(self, id Identity) Verdict {
	switch {
	case !id.named():
		return Unknown
	case id.BootID != self.BootID && id.Host != self.Host:
		return Unknown
	case id.BootID != self.BootID:
		return Dead
	case self.Outlived(id):
		return Dead
	case id.PIDNamespace != self.PIDNamespace:
		return Unknown
	}
	st, err := procfs.Read(id.PID)
	switch {
	case err == nil && (st.Zombie() || st.Started != id.StartedAt):
		return Dead
	case err == nil:
		return Alive
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
		return Unknown
	}
	// A /proc mounted with hidepid doesn't show other users' processes; a signal still tells them from none.
	switch err := unix.Kill(id.PID, 0); {
	case errors.Is(err, unix.ESRCH):
		return Dead
	case errors.Is(err, unix.EPERM):
		return Alive
	default:
		return Unknown
	}
}
