package db_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

// listening is a Listener under test and what it has told.
type listening struct {
	*db.Listener
	connects chan struct{}
	heard    chan string
	ready    chan struct{}
	stop     func() error
}

// listen runs a Listener whose connection to cfg is named so in the server. Unless told otherwise it is notified directly.
func listen(t *testing.T, cfg *pgx.ConnConfig, lc db.ListenerConfig) *listening {
	t.Helper()
	if lc.Connect == nil {
		lc.Connect = dialer(cfg, "listener")
	}
	if lc.Sender == nil {
		lc.Sender = dialer(cfg, "sender")
	}
	l := &listening{connects: make(chan struct{}, 100), heard: make(chan string, 1000), ready: make(chan struct{}, 100)}
	lc.OnConnect = func() { l.connects <- struct{}{} }
	lc.OnNotify = func(channel, payload string) { l.heard <- channel + " " + payload }
	lc.Channels = []string{"orch_jobs", `odd "name"`}
	l.Listener = db.NewListener(lc)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, func() { l.ready <- struct{}{} }) }()
	l.stop = sync.OnceValue(func() error {
		cancel(nil)
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return context.DeadlineExceeded
		}
	})
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if l.Connected() {
			t.Error("connected after Run")
		}
	})
	return l
}

func dialer(cfg *pgx.ConnConfig, name string) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		return db.Connect(ctx, db.Config{Conn: cfg, ApplicationName: name})
	}
}

// backends answers the process ids of the listeners on this connection's database.
func backends(t *testing.T, conn *pgx.Conn) []int32 {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select pid from pg_stat_activity where datname = current_database() and application_name = 'listener'")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// notifyUntilHeard sends until the listener hears: what is sent between two of its connections is lost.
func notifyUntilHeard(t *testing.T, l *listening, send func()) {
	t.Helper()
	deadline := time.After(patience)
	for {
		send()
		select {
		case <-l.heard:
			return
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("never heard")
		}
	}
}

// eventually waits for a condition that no event tells.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// logbook is a log that can be waited on.
type logbook chan map[string]any

func newLog() (*slog.Logger, logbook) {
	lines := make(logbook, 1000)
	return slog.New(slog.NewJSONHandler(lines, nil)), lines
}

// Write implements io.Writer.
func (b logbook) Write(line []byte) (int, error) {
	var record map[string]any
	if err := json.Unmarshal(line, &record); err != nil {
		return 0, err
	}
	b <- record
	return len(line), nil
}

// await passes over the lines up to the one with that code.
func (b logbook) await(t *testing.T, code string) map[string]any {
	t.Helper()
	for {
		if line := receive(t, b, "the log to tell of "+code); line["code"] == code {
			return line
		}
	}
}

// count takes what is there and answers how many lines have that code.
func (b logbook) count(code string) (n int) {
	for {
		select {
		case line := <-b:
			if line["code"] == code {
				n++
			}
		default:
			return n
		}
	}
}

// repeats says whether one of the lines that are there has the code of the one before, the first one that of last.
func (b logbook) repeats(last string) bool {
	for {
		select {
		case line := <-b:
			code, _ := line["code"].(string)
			if code != "" && code == last {
				return true
			}
			last = code
		default:
			return false
		}
	}
}
