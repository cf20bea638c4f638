// Package testhost runs programs of tests apart from everybody else: on a host of their own, or in a container.
//
// The test binary becomes what it starts: a TestMain calls Become before anything else.
package testhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// role says what a process of the test binary is to become: "host NAME" or "container".
const role = "ORCHTEST_APART"

const container = "container"

// Become finishes what this process was started in and becomes the program that is to run there, when it was started so.
// It returns only when it wasn't, or with an error.
func Become() error {
	as := os.Getenv(role)
	if as == "" {
		return nil
	}
	if err := os.Unsetenv(role); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if name, host := strings.CutPrefix(as, "host "); host {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("name the host: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if len(os.Args) < 2 {
		return errors.New("become what?")
	}
	return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request))); errno != 0 {
		return fmt.Errorf("loopback up: %w", errno)
	}
	return nil
}

// Host makes a command run on a host of that name: with networks, a name, processes and mounts of its own.
func Host(cmd *exec.Cmd, name string) error {
	return apart(cmd, "host "+name, unix.CLONE_NEWNET|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC)
}

// Container makes a command the first process of a container: whatever it starts is gone with it. The container has this
// host's name and networks.
func Container(cmd *exec.Cmd) error { return apart(cmd, container, 0) }

func apart(cmd *exec.Cmd, as string, more uintptr) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd.Args = append([]string{self}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = self
	cmd.Env = append(cmd.Env, role+"="+as)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | more}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return nil
}
