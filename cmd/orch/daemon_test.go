package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"orch/internal/testhost"
)

// daemon is a running orch process that serves until it is stopped.
type daemon struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and all it wrote is in the log

	mu  sync.Mutex
	log strings.Builder
	err error         // how it ended
	new chan struct{} // closed and replaced at each line
}

// start starts a process of orch. It is killed at the end of the test.
func (p *place) start(args ...string) *daemon {
	p.t.Helper()
	d := &daemon{t: p.t, cmd: p.command(args...), ended: make(chan struct{}), new: make(chan struct{})}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if p.host != "" {
		if err := testhost.Host(d.cmd, p.host); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := d.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go d.read(stderr)
	p.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if p.t.Failed() {
			p.t.Logf("log of orch %s, pid %d:\n%s", strings.Join(args, " "), d.cmd.Process.Pid, d.text())
		}
	})
	return d
}

func (d *daemon) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.mu.Lock()
		d.log.WriteString(lines.Text() + "\n")
		close(d.new)
		d.new = make(chan struct{})
		d.mu.Unlock()
	}
	err := d.cmd.Wait()
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	close(d.ended)
}

func (d *daemon) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// line is a line of the log.
type line struct {
	Msg     string `json:"msg"`
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

func (d *daemon) lines() (lines []line, more <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text := range strings.Lines(d.log.String()) {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines, d.new
}

// says waits for a line of the log. A process that ends instead fails the test.
func (d *daemon) says(what string, is func(line) bool) line {
	d.t.Helper()
	limit := time.After(patience)
	for {
		lines, more := d.lines()
		for _, l := range lines {
			if is(l) {
				return l
			}
		}
		select {
		case <-more:
		case <-d.ended:
			lines, _ := d.lines()
			for _, l := range lines {
				if is(l) {
					return l
				}
			}
			d.t.Fatalf("pid %d ended (%v) and didn't say: %s", d.cmd.Process.Pid, d.err, what)
		case <-limit:
			d.t.Fatalf("pid %d doesn't say: %s", d.cmd.Process.Pid, what)
		}
	}
}

// waits waits until the process says that it waits for that.
func (d *daemon) waits(reason string) {
	d.t.Helper()
	d.says("worker_waiting reason="+reason, func(l line) bool { return l.Msg == "worker_waiting" && l.Reason == reason })
}

// waited lists what the process has waited for, in order.
func (d *daemon) waited() (reasons []string) {
	lines, _ := d.lines()
	for _, l := range lines {
		if l.Msg == "worker_waiting" {
			reasons = append(reasons, l.Reason)
		}
	}
	return reasons
}

// works waits until a worker's process is up.
func (d *daemon) works() {
	d.t.Helper()
	d.says("orch worker is up", func(l line) bool { return l.Msg == "orch worker is up" })
}

// end sends a signal and waits for the process; it returns how it ended.
func (d *daemon) end(signal syscall.Signal) error {
	d.t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		d.t.Fatal(err)
	}
	return d.wait()
}

// wait waits for the end of the process.
func (d *daemon) wait() error {
	d.t.Helper()
	select {
	case <-d.ended:
		return d.err
	case <-time.After(patience):
		d.t.Fatalf("pid %d doesn't end", d.cmd.Process.Pid)
		return nil
	}
}

// stops ends the process by SIGTERM, and expects that it took it as a matter of course.
func (d *daemon) stops() {
	d.t.Helper()
	if err := d.end(syscall.SIGTERM); err != nil {
		d.t.Errorf("pid %d ended with %v", d.cmd.Process.Pid, err)
	}
}

// refuses waits until the process has ended with exit code 1, having said why, and returns all that it said.
func (d *daemon) refuses(words ...string) string {
	d.t.Helper()
	if err := d.wait(); err == nil || d.cmd.ProcessState.ExitCode() != 1 {
		d.t.Errorf("pid %d ended with %v, want exit code 1", d.cmd.Process.Pid, err)
	}
	said := d.text()
	for _, word := range words {
		if !strings.Contains(said, word) {
			d.t.Errorf("it didn't say %q", word)
		}
	}
	return said
}
