package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

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
