package lifespan_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"orch/internal/lifespan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is an ordered record that many goroutines write.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) add(entry string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.entries...)
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

// obedient is a service that is ready at once and notes its start and its stop.
func obedient(j *journal, name string) lifespan.Func {
	return func(ctx context.Context, ready func()) error {
		j.add("start " + name)
		ready()
		<-ctx.Done()
		j.add("stop " + name)
		return context.Cause(ctx)
	}
}

// launch runs s in a goroutine; the returned function stops it and answers what Run answered.
func launch(s *lifespan.Supervisor) (stop func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error {
		cancel(nil)
		return <-done
	}
}

func status(t *testing.T, s *lifespan.Supervisor, name string) lifespan.Status {
	t.Helper()
	for _, status := range s.Snapshot() {
		if status.Name == name {
			return status
		}
	}
	t.Fatalf("no service %q in the snapshot", name)
	return lifespan.Status{}
}
