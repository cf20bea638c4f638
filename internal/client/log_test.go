package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/client"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

var exited = httpapi.RunEnd{Ended: "exited", ExitCode: new(0), Outcome: "ok"}

// following is a FollowLog that runs.
type following struct {
	chunks chan client.Chunk
	done   chan error
	end    api.RunEnd
}

func follow(t *testing.T, c *client.Client, run *apitest.Run, offset int64) *following {
	t.Helper()
	f := &following{chunks: make(chan client.Chunk, 1000), done: make(chan error, 1)}
	go func() {
		var err error
		f.end, err = c.FollowLog(t.Context(), run.ID, offset, func(chunk client.Chunk) error {
			f.chunks <- chunk
			return nil
		})
		f.done <- err
	}()
	return f
}

// text waits for all bytes up to an offset.
func (f *following) text(t *testing.T, until int64) string {
	t.Helper()
	var text strings.Builder
	for {
		select {
		case chunk := <-f.chunks:
			text.WriteString(chunk.Text)
			if chunk.End >= until {
				return text.String()
			}
		case <-time.After(4 * time.Minute):
			t.Fatalf("nothing came after %q", text.String())
		}
	}
}

func write(t *testing.T, run *apitest.Run, text string) {
	t.Helper()
	if _, err := run.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestFollowLogOutlivesRestarts(t *testing.T) {
	t.Parallel()
	b, socket := &apitest.Backend{}, socketPath(t)
	run := b.AddRun()
	_, stop := apitest.Start(t, apitest.Config(b, socket))
	f := follow(t, dial(t, client.Config{Socket: socket}), run, 0)
	var length int64
	for restart := range 4 {
		text := fmt.Sprintf("line %d äöü\n", restart)
		write(t, run, text)
		length += int64(len(text))
		if got := f.text(t, length); got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
		stop()
		write(t, run, "while away\n") // the next server sends it first
		length += 11
		_, stop = apitest.Start(t, apitest.Config(b, socket))
		if got := f.text(t, length); got != "while away\n" {
			t.Fatalf("got %q", got)
		}
	}
	run.End(exited)
	if err := <-f.done; err != nil || *f.end.Ended != "exited" || f.end.LogEnd != length {
		t.Errorf("got %+v, %v", f.end, err)
	}
	if n := run.Follows(); n != 5 {
		t.Errorf("it connected %d times, want 5", n)
	}
}

func TestFollowLogTellsOnceOfEachOutage(t *testing.T) {
	t.Parallel()
	b, socket := &apitest.Backend{}, socketPath(t)
	run := b.AddRun()
	_, stop := apitest.Start(t, apitest.Config(b, socket))
	told := make(chan error, 1000)
	f := follow(t, dial(t, client.Config{Socket: socket, OnOutage: func(err error) { told <- err }}), run, 0)
	for outage := range int64(2) {
		write(t, run, "x")
		f.text(t, outage+1)
		stop()
		if err := <-told; !errors.Is(err, client.ErrNoServer) {
			t.Errorf("told of %v", err)
		}
		_, stop = apitest.Start(t, apitest.Config(b, socket))
	}
	run.End(exited)
	if err := <-f.done; err != nil || len(told) > 0 {
		t.Errorf("ended with %v, told %d times too often", err, len(told))
	}
}

func TestFollowLogOfARunThatEnded(t *testing.T) {
	t.Parallel()
	b, socket := &apitest.Backend{}, socketPath(t)
	run := b.AddRun()
	write(t, run, "0123456789")
	run.End(exited)
	apitest.Start(t, apitest.Config(b, socket))
	f := follow(t, dial(t, client.Config{Socket: socket}), run, -4)
	if got := f.text(t, 10); got != "6789" {
		t.Errorf("got %q", got)
	}
	if err := <-f.done; err != nil {
		t.Error(err)
	}
}

func TestFollowLogEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	b, socket := &apitest.Backend{}, socketPath(t)
	run := b.AddRun()
	write(t, run, "x")
	apitest.Start(t, apitest.Config(b, socket))
	c := dial(t, client.Config{Socket: socket})
	enough := errors.New("enough")
	if _, err := c.FollowLog(t.Context(), run.ID, 0, func(client.Chunk) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := c.FollowLog(ctx, run.ID, 0, func(client.Chunk) error { cancel(enough); return nil })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	_, err = c.FollowLog(t.Context(), uuid.New(), 0, func(client.Chunk) error { return nil })
	problem(t, err, http.StatusNotFound, "not_found")
}

func TestFollowLogGivesUpWhenTheServerStaysAway(t *testing.T) {
	t.Parallel()
	b, socket := &apitest.Backend{}, socketPath(t)
	run := b.AddRun()
	write(t, run, "x")
	_, stop := apitest.Start(t, apitest.Config(b, socket))
	f := follow(t, dial(t, client.Config{Socket: socket, MaxOutage: time.Millisecond}), run, 0)
	f.text(t, 1)
	stop()
	if err := <-f.done; !errors.Is(err, client.ErrNoServer) {
		t.Errorf("got %v", err)
	}
	_, err := dialFails(t, socket)
	if !errors.Is(err, client.ErrNoServer) {
		t.Errorf("got %v", err)
	}
}

func dialFails(t *testing.T, socket string) (*client.Client, error) {
	t.Helper()
	return client.Dial(t.Context(), client.Config{Socket: socket})
}

// A stream that is cut in the middle of an event must not count the event.
func TestHalfAnEventIsNone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			fmt.Fprint(w, `{"status":"ok"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		switch asked.Add(1) {
		case 1:
			fmt.Fprint(w, "id: 1\nevent: log\ndata: {\"offset\":0,\"text\":\"a\"}\n\nid: 2\nevent: log\ndata: {\"offset\":1,\"te")
		case 2:
			fmt.Fprint(w, ": alive\n\nid: 2\nevent: log\ndata: {\"offset\":1,\"text\":\"b\"}\n") // all but the empty line
		default:
			if id := r.Header.Get("Last-Event-ID"); id != "1" {
				t.Errorf("it goes on at %q", id)
			}
			fmt.Fprint(w, "id: 2\nevent: log\ndata: {\"offset\":1,\"text\":\"B\"}\n\nevent: end\ndata: {\"log_end\":2}\n\n")
		}
	}))
	defer server.Close()
	c := dial(t, client.Config{URL: server.URL})
	var text strings.Builder
	end, err := c.FollowLog(t.Context(), uuid.New(), 0, func(chunk client.Chunk) error {
		text.WriteString(chunk.Text)
		return nil
	})
	if err != nil || end.LogEnd != 2 || text.String() != "aB" {
		t.Errorf("got %q, %+v, %v", text.String(), end, err)
	}
}
