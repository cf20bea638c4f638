package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// roleHost has the test binary become a host of its own: networks, name, processes and mounts apart from everybody else's.
const roleHost = "ORCHTEST_HOST"

// becomeHost finishes the host that this process was started in, and becomes the program that it is to run.
func becomeHost(name string, argv []string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("name the host: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
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

// onHost makes a command run on a host of that name.
func onHost(cmd *exec.Cmd, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{self}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = self
	cmd.Env = append(cmd.Env, roleHost+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return nil
}

// cable is all that connects a host with the database. Cut, it carries nothing, and nobody is told.
type cable struct {
	config  *pgx.ConnConfig
	server  string
	running sync.WaitGroup

	mu     sync.Mutex
	mended *sync.Cond
	cut    bool
	closed bool
	ends   []net.Conn
}

func newCable(t *testing.T, to *pgx.ConnConfig) *cable {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "cable-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := "/.s.PGSQL." + strconv.Itoa(int(to.Port))
	c := &cable{config: to.Copy(), server: to.Host + socket}
	c.config.Host = dir
	c.mended = sync.NewCond(&c.mu)
	listener, err := net.Listen("unix", dir+socket)
	if err != nil {
		t.Fatal(err)
	}
	c.running.Go(func() { c.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		c.close()
		c.running.Wait()
		_ = os.RemoveAll(dir)
	})
	return c
}

func (c *cable) accept(listener net.Listener) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", c.server)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.ends = append(c.ends, near, far)
		c.mu.Unlock()
		c.running.Go(func() { c.carry(near, far) })
		c.running.Go(func() { c.carry(far, near) })
	}
}

func (c *cable) carry(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		c.mu.Lock()
		for c.cut && !c.closed {
			c.mended.Wait()
		}
		c.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	c.mended.Broadcast()
}

func (c *cable) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.mended.Broadcast()
	for _, end := range c.ends {
		_ = end.Close()
	}
}

// beat is a line that an agent of the test writes while it lives.
type beat struct {
	host string
	at   float64 // seconds after the boot
	run  string
}

func (p *place) beats() (all []beat) {
	p.t.Helper()
	for text := range strings.Lines(p.read("beats")) {
		fields := strings.Fields(text)
		if len(fields) != 3 || !strings.HasSuffix(text, "\n") {
			continue
		}
		at, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			p.t.Fatalf("beat %q: %v", text, err)
		}
		all = append(all, beat{fields[0], at, fields[2]})
	}
	return all
}
