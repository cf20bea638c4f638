package db_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler is what PgBouncer is with pool_mode=transaction: its clients share a few server connections, each transaction
// gets the one that became free last, what a server says while no client has it is swallowed, and a start-up parameter
// that it wasn't told to ignore is refused.
type pooler struct {
	listener net.Listener
	ignore   map[string]bool
	servers  []*pooled
	running  sync.WaitGroup

	mu      sync.Mutex
	freed   *sync.Cond
	free    []*pooled // the last one is taken first
	clients []net.Conn
	closed  bool
}

// pooled is a server connection.
type pooled struct {
	conn  net.Conn
	hello []byte // its parameter statuses, for new clients

	mu     sync.Mutex
	client net.Conn // who has it
}

func newPooler(t *testing.T, cfg *pgx.ConnConfig, servers int, ignore ...string) *pooler {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{listener: l, ignore: map[string]bool{}}
	p.freed = sync.NewCond(&p.mu)
	for _, name := range append(ignore, "user", "database", "application_name", "client_encoding") {
		p.ignore[name] = true
	}
	t.Cleanup(p.close)
	for range servers {
		s, err := logIn(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.servers, p.free = append(p.servers, s), append(p.free, s)
		p.running.Go(func() { p.read(s) })
	}
	p.running.Go(p.accept)
	return p
}

func (p *pooler) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, conn := range p.clients {
		_ = conn.Close()
	}
	for _, s := range p.servers {
		_ = s.conn.Close()
	}
	p.freed.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
}

// logIn opens a server connection; the test clusters trust everybody.
func logIn(cfg *pgx.ConnConfig) (*pooled, error) {
	conn, err := dialServer(cfg)
	if err != nil {
		return nil, err
	}
	s := &pooled{conn: conn}
	front := pgproto3.NewFrontend(conn, conn)
	front.Send(&pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": cfg.User, "database": cfg.Database},
	})
	if err := front.Flush(); err != nil {
		return nil, err
	}
	for {
		msg, err := front.Receive()
		if err != nil {
			return nil, err
		}
		switch msg := msg.(type) {
		case *pgproto3.ParameterStatus:
			if s.hello, err = msg.Encode(s.hello); err != nil {
				return nil, err
			}
		case *pgproto3.ErrorResponse:
			return nil, fmt.Errorf("log in: %s", msg.Message)
		case *pgproto3.ReadyForQuery:
			return s, nil
		}
	}
}

func (p *pooler) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.clients = append(p.clients, client)
		p.mu.Unlock()
		p.running.Go(func() {
			defer func() { _ = client.Close() }()
			if p.greet(client) == nil {
				p.serve(client)
			}
		})
	}
}

// greet answers a client's start-up.
func (p *pooler) greet(client net.Conn) error {
	back := pgproto3.NewBackend(client, client)
	msg, err := back.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	start, ok := msg.(*pgproto3.StartupMessage)
	if !ok { // a cancel request has no place here
		return io.EOF
	}
	for name := range start.Parameters {
		if !p.ignore[name] {
			back.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
			_ = back.Flush()
			return io.EOF
		}
	}
	back.Send(&pgproto3.AuthenticationOk{})
	if err := back.Flush(); err != nil {
		return err
	}
	if _, err := client.Write(p.servers[0].hello); err != nil {
		return err
	}
	back.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}})
	back.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return back.Flush()
}

// serve passes a client's messages to the server connection that it has, one for each transaction.
func (p *pooler) serve(client net.Conn) {
	for {
		msg, err := readMessage(client)
		if err != nil || msg[0] == 'X' {
			return // a client that goes in the middle of a transaction isn't played here
		}
		s := p.take(client)
		if s == nil {
			return
		}
		if _, err := s.conn.Write(msg); err != nil {
			return
		}
	}
}

// take returns the client's server connection, or waits for a free one.
func (p *pooler) take(client net.Conn) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.owner() == client {
			return s
		}
	}
	for len(p.free) == 0 && !p.closed {
		p.freed.Wait()
	}
	if p.closed {
		return nil
	}
	s := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	s.setOwner(client)
	return s
}

func (s *pooled) owner() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

func (s *pooled) setOwner(client net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = client
}

// read passes a server's messages to whoever has it, and takes it back after the end of a transaction.
func (p *pooler) read(s *pooled) {
	for {
		msg, err := readMessage(s.conn)
		if err != nil {
			return
		}
		client := s.owner()
		if client == nil {
			continue // "got packet 'A' from server when not linked"
		}
		done := msg[0] == 'Z' && msg[5] == 'I'
		if done { // before the client knows, so that its next transaction may get another one
			p.mu.Lock()
			s.setOwner(nil)
			p.free = append(p.free, s)
			p.freed.Signal()
			p.mu.Unlock()
		}
		if _, err := client.Write(msg); err != nil && !done {
			p.mu.Lock() // its client is gone
			s.setOwner(nil)
			p.mu.Unlock()
		}
	}
}

// readMessage reads one message of the protocol, whole.
func readMessage(from io.Reader) ([]byte, error) {
	msg := make([]byte, 5)
	if _, err := io.ReadFull(from, msg); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(msg[1:])-4)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, err
	}
	return slices.Concat(msg, body), nil
}
