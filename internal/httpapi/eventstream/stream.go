// Package eventstream writes server-sent events, and cuts what a program writes into pieces of text for them.
package eventstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// sendWithin bounds one write to a stream: a client that doesn't read is dropped.
const sendWithin = 20 * time.Second

// Stream writes server-sent events to one client.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Open takes the connection out of the server's timeouts and sends the headers at once.
func Open(w http.ResponseWriter) (*Stream, error) {
	s := &Stream{w: w, control: http.NewResponseController(w)}
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	if err := s.write("retry: 1000\n\n"); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}

// Beat sends a comment, which shows both sides that the other one is there.
func (s *Stream) Beat() error { return s.write(": alive\n\n") }

// Event sends an event with data as JSON. An empty id leaves the one before in force.
func (s *Stream) Event(kind, id string, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	text := "event: " + kind + "\ndata: " + string(encoded) + "\n\n"
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	return s.write(text)
}
