package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
)

var (
	errNotFound = errors.New("command not found")
	errNoDir    = errors.New("working directory is not there")
	errPipeHeld = errors.New("output pipe is still held open")
)

const (
	// drainPatience bounds the wait for the end of the output after everything that could write is gone.
	drainPatience = 5 * time.Second
	copyBuffer    = 32 << 10
)

// program is the shim's side of what it started.
type program struct {
	pid int
	// identity is zero when anonymous says why.
	identity  process.Identity
	anonymous error
	stdin     *os.File // nil when there is nothing to read
	output    *os.File
	// ended is closed when the program was reaped, childless when no descendant is left either.
	ended, childless chan struct{}
	copied           chan error
	lastOutput       atomic.Int64 // BootClock
	// reaping keeps the program's pid from being freed between a look at reaped and a signal.
	reaping sync.Mutex
	reaped  bool
	status  unix.WaitStatus
	usage   unix.Rusage
}

// startProgram starts the spec's command in a process group of its own, in the cgroup if there is one, with the environment
// and the mark. Its output goes to out, which is closed when there is no more.
func startProgram(dir string, spec process.Spec, cgroup string, env []string, out io.WriteCloser) (*program, error) {
	path, err := resolve(spec, env)
	if err != nil {
		return nil, err
	}
	p := &program{ended: make(chan struct{}), childless: make(chan struct{}), copied: make(chan error, 1)}
	var source *os.File
	in, err := os.Open(os.DevNull)
	if spec.Stdin != "" && err == nil {
		_ = in.Close()
		if source, err = os.Open(filepath.Join(dir, filepath.Base(spec.Stdin))); err == nil {
			in, p.stdin, err = os.Pipe()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open stdin: %w", err)
	}
	defer func() { _ = in.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	defer func() { _ = write.Close() }()
	p.output = read
	child, err := startIn(cgroup, path, spec.Argv, &os.ProcAttr{
		Dir:   spec.Dir,
		Env:   markedEnv(env, spec.RunID),
		Files: []*os.File{in, write, write},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	p.pid = child.Pid
	_ = child.Release() // reaped below, with everybody else's orphans
	// Before that: what has ended by now is still there as a zombie.
	p.identity, p.anonymous = process.IdentityOf(p.pid)
	go p.reap()
	go func() { p.copied <- p.copyTo(out) }()
	if source != nil {
		go feed(p.stdin, source)
	}
	return p, nil
}

// startIn starts a process in a cgroup, and outside when that can't be: the kernel has more reasons to refuse it than one
// could foresee, and it tells them from those of the program by nothing.
func startIn(cgroup, path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	if dir, err := os.Open(cgroup); err == nil {
		defer func() { _ = dir.Close() }()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		if child, err := os.StartProcess(path, argv, attr); err == nil {
			return child, nil
		}
		attr.Sys.UseCgroupFD = false
	}
	return os.StartProcess(path, argv, attr)
}

// resolve finds the command as execvp would in the environment. A path is taken from the working directory.
func resolve(spec process.Spec, env []string) (string, error) {
	if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("start %s: %w: %s", spec.Argv[0], errNoDir, spec.Dir)
	}
	if strings.ContainsRune(spec.Argv[0], '/') {
		return spec.Argv[0], nil
	}
	for _, entry := range env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			// The shim itself starts nothing else.
			if err := os.Setenv("PATH", path); err != nil {
				return "", fmt.Errorf("start %s: %w", spec.Argv[0], err)
			}
		}
	}
	path, err := exec.LookPath(spec.Argv[0])
	if err != nil {
		return "", fmt.Errorf("start %s: %w", spec.Argv[0], errNotFound)
	}
	return path, nil
}

func markedEnv(env []string, runID string) []string {
	out := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if !strings.HasPrefix(entry, process.Mark+"=") {
			out = append(out, entry)
		}
	}
	return append(out, process.Mark+"="+runID)
}

// feed gives the program its input and then the end of it.
func feed(to, from *os.File) {
	_, _ = io.Copy(to, from) // a program need not read
	_ = from.Close()
	_ = to.Close()
}

func (p *program) closeStdin() {
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
}

// reap takes in every child, the program and the orphans that the subreaper inherits, until there is none. Nothing
// is started after the program, so none is none for ever.
func (p *program) reap() {
	defer close(p.childless)
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil) // only waits
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		p.reapEnded()
	}
}

func (p *program) reapEnded() {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return
		case pid == p.pid:
			p.status, p.usage, p.reaped = status, usage, true
			close(p.ended)
		}
	}
}

// signalGroup reaches the whole group at once. It does nothing when the program was reaped: the group's number may
// have a new owner then.
func (p *program) signalGroup(sig unix.Signal) {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	if !p.reaped {
		_ = unix.Kill(-p.pid, sig)
	}
}

// copyTo passes the output on until it ends. Whatever becomes of it, it is read on: nothing stops the program.
func (p *program) copyTo(out io.WriteCloser) error {
	buf := make([]byte, copyBuffer)
	var failed error
	for {
		n, err := p.output.Read(buf)
		if n > 0 {
			p.lastOutput.Store(process.BootClock())
			if failed == nil {
				_, failed = out.Write(buf[:n])
			}
		}
		if err == nil {
			continue
		}
		failed = errors.Join(failed, out.Close())
		switch {
		case errors.Is(err, io.EOF):
			return failed
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errors.Join(failed, errPipeHeld)
		default:
			return errors.Join(failed, fmt.Errorf("read output: %w", err))
		}
	}
}

// drain waits for the rest of the output.
func (p *program) drain() error {
	_ = p.output.SetReadDeadline(time.Now().Add(drainPatience))
	err := <-p.copied
	_ = p.output.Close()
	return err
}

func (p *program) succeeded() bool { return p.status.Exited() && p.status.ExitStatus() == 0 }

func (p *program) result(exit *process.Exit) {
	switch {
	case p.status.Exited():
		code := p.status.ExitStatus()
		exit.Code = &code
	case p.status.Signaled():
		exit.Signal = unix.SignalName(p.status.Signal())
	}
	exit.UserTime = time.Duration(p.usage.Utime.Nano())
	exit.SystemTime = time.Duration(p.usage.Stime.Nano())
	exit.MaxRSSBytes = p.usage.Maxrss << 10
}
