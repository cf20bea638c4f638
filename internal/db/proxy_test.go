package db_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// proxy stands between a client and its server, and is as bad as networks are.
type proxy struct {
	listener net.Listener
	target   func() (net.Conn, error)
	running  sync.WaitGroup
	held     chan struct{} // a connection fell silent because of hold

	mu    sync.Mutex
	links []*link
	mute  bool   // whoever connects now is accepted, and never hears anything
	hold  []byte // a client that says this hears nothing from then on
}

type link struct {
	client, server net.Conn // no server on a mute one
	silent         atomic.Bool
}

func newProxy(t *testing.T, cfg *pgx.ConnConfig) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, held: make(chan struct{}, 100), target: func() (net.Conn, error) { return dialServer(cfg) }}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.drop()
		p.running.Wait()
	})
	return p
}

func dialServer(cfg *pgx.ConnConfig) (net.Conn, error) {
	if cfg.Host[0] == '/' {
		return net.Dial("unix", cfg.Host+"/.s.PGSQL."+strconv.Itoa(int(cfg.Port)))
	}
	return net.Dial("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
}

// config is cfg by way of the proxy.
func (p *proxy) config(cfg *pgx.ConnConfig) *pgx.ConnConfig { return via(cfg, p.listener) }

func via(cfg *pgx.ConnConfig, l net.Listener) *pgx.ConnConfig {
	cfg = cfg.Copy()
	addr, _ := l.Addr().(*net.TCPAddr)
	cfg.Host, cfg.Port, cfg.Fallbacks = "127.0.0.1", addr.AddrPort().Port(), nil
	return cfg
}

// silence swallows from now on whatever the connections that exist send, in both directions.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.silent.Store(true)
	}
}

// drop closes the connections that exist.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.close()
	}
	p.links = nil
}

func (p *proxy) muteNew(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

func (p *proxy) holdOn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = []byte(text)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.link(client)
	}
}

func (p *proxy) link(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &link{client: client}
	p.links = append(p.links, l)
	if p.mute {
		p.held <- struct{}{}
		return
	}
	server, err := p.target()
	if err != nil {
		_ = client.Close()
		return
	}
	l.server = server
	hold := p.hold
	p.running.Go(func() { p.pump(l, client, server, hold) })
	p.running.Go(func() { p.pump(l, server, client, nil) })
}

func (l *link) close() {
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (p *proxy) pump(l *link, from, to net.Conn, hold []byte) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if len(hold) > 0 && bytes.Contains(buf[:n], hold) && !l.silent.Swap(true) {
			p.held <- struct{}{}
		}
		if n > 0 && !l.silent.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !l.silent.Load() && errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			return
		}
	}
}
