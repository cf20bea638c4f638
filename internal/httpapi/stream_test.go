package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

// sse is one open stream.
type sse struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Reader
	leave    context.CancelCauseFunc
}

// event is an event that came, or a comment (kind "comment"), or the end of the stream (kind "closed").
type event struct{ kind, id, data string }

func (s *site) follow(t *testing.T, run *apitest.Run, query string, headers ...string) *sse {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := request(t, http.MethodGet, "http://"+s.server.Addr()+"/runs/"+run.ID.String()+"/log?follow=1"+query, "", headers...)
	response, err := s.tcp.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(nil); response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("got %d %s", response.StatusCode, kind)
	}
	return &sse{t: t, response: response, lines: bufio.NewReader(response.Body), leave: cancel}
}

// next reads the next event, skipping what has neither kind nor comment.
func (s *sse) next() event {
	s.t.Helper()
	var e event
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return event{kind: "closed"}
		}
		line = strings.TrimSuffix(line, "\n")
		name, text, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.kind != "":
			return e
		case line == "":
			e = event{}
		case strings.HasPrefix(line, ":"):
			e.kind = "comment"
		case name == "event":
			e.kind = text
		case name == "id":
			e.id = text
		case name == "data":
			e.data = text
		}
	}
}

// text reads log events until that many bytes, or another event, came.
func (s *sse) text(until int64) string {
	s.t.Helper()
	var text strings.Builder
	for {
		e := s.next()
		if e.kind != "log" {
			s.t.Fatalf("got %+v after %q", e, text.String())
		}
		var chunk api.LogChunk
		if err := json.Unmarshal([]byte(e.data), &chunk); err != nil {
			s.t.Fatal(err)
		}
		text.WriteString(chunk.Text)
		id, err := strconv.ParseInt(e.id, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		if id >= until {
			return text.String()
		}
	}
}

func (s *sse) end() api.RunEnd {
	s.t.Helper()
	e := s.next()
	var end api.RunEnd
	if err := json.Unmarshal([]byte(e.data), &end); e.kind != "end" || err != nil {
		s.t.Fatalf("got %+v, want the end", e)
	}
	if e := s.next(); e.kind != "closed" {
		s.t.Fatalf("got %+v after the end", e)
	}
	return end
}

func TestFollowALogToItsEnd(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := s.AddRun()
	stream := s.follow(t, run, "")
	write(t, run, "hello\nworld")
	if got := stream.text(11); got != "hello\nworld" {
		t.Errorf("got %q", got)
	}
	write(t, run, "\r\n\n\x00\xff end")
	if got := stream.text(20); got != "\r\n\n\x00\ufffd end" {
		t.Errorf("got %q", got)
	}
	run.End(exited)
	end := stream.end()
	if *end.Ended != "exited" || *end.ExitCode != 0 || end.Signal != nil || *end.Outcome != "ok" || end.LogEnd != 20 || end.RunID != run.ID {
		t.Errorf("got %+v", end)
	}
	again := s.follow(t, run, "&offset=-3")
	if got := again.text(20); got != "end" {
		t.Errorf("got %q", got)
	}
	again.end()
}

func TestLongLogsComeInBoundedChunks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := s.AddRun()
	text := strings.Repeat("äöü€😀\n", 20_000)
	write(t, run, text)
	run.End(exited)
	stream := s.follow(t, run, "")
	if got := stream.text(int64(len(text))); got != text {
		t.Error("the text didn't survive")
	}
	if end := stream.end(); end.LogEnd != int64(len(text)) {
		t.Errorf("got %+v", end)
	}
}

func TestResumeALog(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := s.AddRun()
	write(t, run, "0123456789")
	for id, want := range map[string]string{"0": "0123456789", "4": "456789", "9": "9"} {
		stream := s.follow(t, run, "&offset=2", "Last-Event-ID", id)
		if got := stream.text(10); got != want {
			t.Errorf("from %s: got %q", id, got)
		}
	}
	run.Drop(6)
	if got := s.follow(t, run, "", "Last-Event-ID", "4").next(); got.data != `{"offset":6,"text":"6789"}` {
		t.Errorf("after rotation: got %+v", got)
	}
	for _, id := range []string{"x", "-1", "1.5"} {
		s.ask(t, http.MethodGet, "/runs/"+run.ID.String()+"/log?follow=1", "", "Last-Event-ID", id).
			problem(t, http.StatusBadRequest, "bad_parameter")
	}
}

func TestSilentStreamsShowThatTheyLive(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.StreamHeartbeat = 5 * time.Millisecond })
	run := s.AddRun()
	stream := s.follow(t, run, "")
	for range 3 {
		if e := stream.next(); e.kind != "comment" {
			t.Fatalf("got %+v", e)
		}
	}
}

func TestAStopCutsStreamsAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.StopTimeout = time.Hour })
	run := s.AddRun()
	streams := make([]*sse, 5)
	for i := range streams {
		streams[i] = s.follow(t, run, "")
	}
	s.stop() // would take an hour if it waited for the streams
	for _, stream := range streams {
		if e := stream.next(); e.kind != "closed" {
			t.Errorf("got %+v: a stop is no end of the run", e)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.MaxStreams = 2 })
	run := s.AddRun()
	first := s.follow(t, run, "")
	s.follow(t, run, "")
	path := "/runs/" + run.ID.String() + "/log?follow=1"
	s.ask(t, http.MethodGet, path, "").problem(t, http.StatusServiceUnavailable, "too_many_streams")
	if got := s.ask(t, http.MethodGet, "/runs/"+run.ID.String()+"/log", ""); got.StatusCode != http.StatusOK {
		t.Errorf("a plain read: got %d", got.StatusCode)
	}
	first.leave(nil)
	run.End(exited) // lets the next ask end by itself
	eventually(t, "a slot is free", func() bool { return s.ask(t, http.MethodGet, path, "").StatusCode == http.StatusOK })
}

func TestClientsThatLeaveEndTheReading(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run := s.AddRun()
	s.follow(t, run, "").leave(nil)
	eventually(t, "the request is over", func() bool { return strings.Contains(s.logs.String(), `"msg":"request"`) })
}
