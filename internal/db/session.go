package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// session is one connection of a Listener, from dialling to its loss.
type session struct {
	*Listener
	conn *pgx.Conn
	echo string // the session's own channel
}

// session runs one; healthy is how long it listened.
func (l *Listener) session(ctx context.Context, ready func()) (healthy time.Duration, err error) {
	conn, err := dial(ctx, l.cfg.Connect)
	if err != nil {
		return 0, fmt.Errorf("connect listener: %w", err)
	}
	defer closeConn(ctx, conn)
	s := &session{Listener: l, conn: conn, echo: "orch_ping_" + rand.Text()}
	if err := s.listen(ctx); err != nil {
		return 0, err
	}
	if err := s.prove(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	l.connected.Store(true)
	defer l.connected.Store(false)
	l.log.InfoContext(ctx, "listening for notifications")
	ready()
	l.cfg.OnConnect()
	err = s.receive(ctx)
	return time.Since(begin), err
}

func (s *session) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Answer)
	defer cancel()
	for _, channel := range append([]string{s.echo}, s.cfg.Channels...) {
		// A connection that listens has no use for prepared statements.
		if _, err := s.conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeExec); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	return nil
}

// prove waits for a notification of another session. One of its own would prove little: a pooler that gives both
// transactions the same server connection, as it does while it has few clients, delivers that one and no other.
func (s *session) prove(ctx context.Context) error {
	sender, err := dial(ctx, s.cfg.Sender)
	if err != nil {
		return fmt.Errorf("connect to notify the listener: %w", err)
	}
	defer closeConn(ctx, sender)
	if err := s.ping(ctx, sender); err != nil {
		return err
	}
	return s.hear(ctx, s.cfg.Answer, errNotHeard)
}

// receive passes notifications on until the connection or ctx ends.
func (s *session) receive(ctx context.Context) error {
	for {
		due := time.Now().Add(s.cfg.Ping)
		err := s.next(ctx, due)
		for err == nil {
			err = s.next(ctx, due)
		}
		if !s.silent(ctx, err) {
			return fmt.Errorf("wait for notifications: %w", err)
		}
		if err := s.ping(ctx, s.conn); err != nil {
			return err
		}
		if err := s.hear(ctx, s.cfg.Answer, errNoEcho); err != nil {
			return err
		}
	}
}

// hear is nil when something arrives within limit, whatever it is, and silence when nothing does.
func (s *session) hear(ctx context.Context, limit time.Duration, silence error) error {
	err := s.next(ctx, time.Now().Add(limit))
	if s.silent(ctx, err) {
		return silence
	}
	if err != nil {
		return fmt.Errorf("wait for a notification: %w", err)
	}
	return nil
}

// silent says whether err is just that nothing arrived in time.
func (s *session) silent(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && !s.conn.IsClosed() && ctx.Err() == nil
}

// next handles one notification.
func (s *session) next(ctx context.Context, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := s.conn.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	if n.Channel != s.echo {
		s.cfg.OnNotify(n.Channel, n.Payload)
	}
	return nil
}

// ping notifies the session by way of conn, and looks at the server's notification queue on this occasion.
func (s *session) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Answer)
	defer cancel()
	var usage float64
	var told *string
	const query = `select pg_notification_queue_usage(), case when ` + NotifyRoom + ` then pg_notify($1, '')::text end`
	if err := conn.QueryRow(ctx, query, pgx.QueryExecModeExec, s.echo).Scan(&usage, &told); err != nil {
		return fmt.Errorf("ping listener: %w", err)
	}
	s.queue.saw(ctx, conn, usage)
	if told == nil {
		return errNotifyFull
	}
	return nil
}
