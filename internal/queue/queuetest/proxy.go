// Package queuetest helps tests of the queue and of what runs on it: a database that can be cut off, and rows that a
// worker needs. For tests only.
package queuetest

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Mode is what a Proxy does with what it is given.
type Mode int

// The modes of a Proxy.
const (
	Pass        Mode = iota
	Refuse           // closes connections, old and new
	CutBefore        // closes the connection instead of passing a message on that Match finds
	CutAfter         // passes that message on and closes the connection before the answer
	DieBefore        // CutBefore, and everything else is refused from then on
	DieAfter         // CutAfter, and the same
	HoldAnswers      // passes that message on and keeps its answer back until the mode changes
)

// Proxy stands between a client and the Unix socket of a server.
type Proxy struct {
	tb     testing.TB
	config *pgx.ConnConfig
	target string
	listen net.Listener
	served sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	match   []byte
	hits    int
	dead    bool
	changed chan struct{} // closed at each change of mode
	conns   map[net.Conn]struct{}
}

// NewProxy starts a proxy to the server of cfg; it ends with the test.
func NewProxy(tb testing.TB, cfg *pgx.ConnConfig) *Proxy {
	tb.Helper()
	dir, err := os.MkdirTemp("", "px") //nolint:usetesting // a socket's path is short, the test's own directory isn't
	if err != nil {
		tb.Fatalf("make a directory for the socket: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := ".s.PGSQL." + strconv.Itoa(int(cfg.Port))
	listen, err := (&net.ListenConfig{}).Listen(tb.Context(), "unix", filepath.Join(dir, name))
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	p := &Proxy{
		tb: tb, config: cfg.Copy(), target: filepath.Join(cfg.Host, name), listen: listen,
		changed: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	p.config.Host = dir
	p.config.Fallbacks = nil
	p.served.Go(p.accept)
	tb.Cleanup(func() {
		_ = listen.Close()
		p.Set(Refuse, "")
		p.served.Wait()
	})
	return p
}

// Config is how to connect through the proxy.
func (p *Proxy) Config() *pgx.ConnConfig { return p.config.Copy() }

// Set changes the mode; match is the text that the cutting modes look for in what a client sends. Connections that a
// mode before kept back are closed.
func (p *Proxy) Set(mode Mode, match string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.match, p.dead = mode, []byte(match), false
	close(p.changed)
	p.changed = make(chan struct{})
	if mode == Refuse {
		for conn := range p.conns {
			_ = conn.Close()
		}
	}
}

// Hits is how many messages were matched.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.served.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(p.tb.Context(), "unix", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.track(client, server) {
		return
	}
	defer p.forget(client, server)
	held := make(chan struct{}) // closed when answers are to be kept back
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		defer client.Close()
		p.forward(client, server, held)
	})
	both.Go(func() {
		defer server.Close()
		defer client.Close()
		p.answer(server, client, held)
	})
	both.Wait()
}

// forward passes on what the client sends.
func (p *Proxy) forward(client, server net.Conn, held chan struct{}) {
	buf := make([]byte, 64<<10)
	var once sync.Once
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		mode, matched := p.judge(buf[:n])
		if matched && (mode == DieBefore || mode == DieAfter) {
			p.die(client, server)
		}
		switch {
		case matched && (mode == CutBefore || mode == DieBefore):
			return
		case matched:
			once.Do(func() { close(held) })
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// answer passes on what the server sends.
func (p *Proxy) answer(server, client net.Conn, held chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-held:
			p.keepBack() // the server has answered: it did what it was told
			return
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// die refuses everything but one connection, which is cut off by its own means.
func (p *Proxy) die(spared ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for conn := range p.conns {
		if !slices.Contains(spared, conn) {
			_ = conn.Close()
		}
	}
}

// keepBack returns when the mode is no longer one that keeps answers back.
func (p *Proxy) keepBack() {
	p.mu.Lock()
	mode, changed := p.mode, p.changed
	p.mu.Unlock()
	if mode == HoldAnswers {
		<-changed
	}
}

func (p *Proxy) judge(message []byte) (Mode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	matched := p.mode != Pass && len(p.match) > 0 && bytes.Contains(message, p.match)
	if matched {
		p.hits++
	}
	return p.mode, matched
}

func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return p.mode != Refuse && !p.dead
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}
