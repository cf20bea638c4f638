// Package stub is a model server for tries of real agent programs: it speaks the dialects of OpenAI (responses and chat
// completions), Anthropic and Google, and answers what a script says. Nothing is asked of a network but loopback.
package stub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Script is what the model does.
type Script struct {
	// Command is run by the shell tool of the agent, once in a conversation; then the model says Says.
	Command, Says string
	// Refusal is the answer to requests, instead of the model's.
	Refusal *Refusal
	// Hangs means that requests are taken and never answered.
	Hangs bool
}

// Refusal is an answer that isn't the model's. In Header and Body {{epoch}}, {{utc}} and {{seconds}} stand for the time
// at which it ends, and for how long that is.
type Refusal struct {
	Status int
	Header map[string]string
	Body   string
	// For is how long it lasts from the first request on; zero is for ever.
	For time.Duration
}

// fill puts in when the refusal ends.
func (r *Refusal) fill(text string, until, now time.Time) string {
	left := until.Sub(now).Round(time.Second)
	return strings.NewReplacer(
		"{{epoch}}", strconv.FormatInt(until.Unix(), 10), "{{utc}}", until.UTC().Format(time.DateTime),
		"{{seconds}}", strconv.Itoa(int(left.Seconds())),
	).Replace(text)
}

// The tokens that each answer counts.
const (
	InputTokens  = 1000
	CachedTokens = 200
	OutputTokens = 10
)

// Server answers by a script. It is an http.Handler for any path that ends as one of a dialect's does.
type Server struct {
	script Script

	mu       sync.Mutex
	requests []Request
	first    time.Time
}

// Request is what an agent asked.
type Request struct {
	Path string
	// Tools are the names of the tools that it offers; a request without any is for a title or the like.
	Tools []string
	// Key is the secret it came with.
	Key string
	// Answered means that it holds the result of a tool.
	Answered bool
	// Body is the request as it was sent.
	Body []byte
}

// New makes a server.
func New(script Script) *Server { return &Server{script: script} }

// Requests are those that came so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

const maxBody = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	speak, known := dialectOf(r.URL.Path)
	if !known || r.Method != http.MethodPost {
		http.Error(w, `{"error":{"message":"not here"}}`, http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the agent went away
	}
	asked := speak.read(body)
	asked.Path, asked.Key, asked.Body = r.URL.Path, keyOf(r), body
	now := time.Now()
	until := s.note(asked, now)
	switch refusal := s.script.Refusal; {
	case s.script.Hangs:
		<-r.Context().Done()
	case refusal != nil && (refusal.For == 0 || now.Before(until)):
		for name, value := range refusal.Header {
			w.Header().Set(name, refusal.fill(value, until, now))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(refusal.Status)
		_, _ = io.WriteString(w, refusal.fill(refusal.Body, until, now))
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		stream := &stream{to: w, named: speak.named}
		speak.write(stream, s.answer(asked))
		if speak.done != "" {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", speak.done)
		}
	}
}

// note keeps a request and answers until when it would be refused.
func (s *Server) note(asked Request, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		s.first = now
	}
	s.requests = append(s.requests, asked)
	if s.script.Refusal == nil {
		return now
	}
	return s.first.Add(s.script.Refusal.For)
}

// answer is what the model says: a call of a tool, unless that was done or none is offered.
type answer struct {
	tool, arguments, text string
}

func (s *Server) answer(asked Request) answer {
	if asked.Answered || s.script.Command == "" {
		return answer{text: s.script.Says}
	}
	for _, name := range asked.Tools {
		if arguments := shellCall(name, s.script.Command); arguments != nil {
			encoded, err := json.Marshal(arguments)
			if err != nil {
				return answer{text: err.Error()}
			}
			return answer{tool: name, arguments: string(encoded)}
		}
	}
	if len(asked.Tools) > 0 {
		return answer{text: "There is no shell among " + strings.Join(asked.Tools, ", ")}
	}
	return answer{text: s.script.Says}
}

// shellCall makes the arguments of a shell tool; nil for other tools.
func shellCall(tool, command string) map[string]any {
	switch tool {
	case "shell":
		return map[string]any{"command": []string{"sh", "-c", command}}
	case "exec_command":
		return map[string]any{"cmd": command}
	case "shell_command", "run_shell_command":
		return map[string]any{"command": command}
	case "bash", "Bash":
		return map[string]any{"command": command, "description": "Does what was asked for"}
	default:
		return nil
	}
}

func keyOf(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// stream writes server-sent events.
type stream struct {
	to    io.Writer
	named bool
}

func (s *stream) send(kind string, fields map[string]any) {
	if s.named {
		fields["type"] = kind
		_, _ = fmt.Fprintf(s.to, "event: %s\n", kind)
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return // maps of strings and numbers can be encoded
	}
	_, _ = fmt.Fprintf(s.to, "data: %s\n\n", encoded)
	if f, ok := s.to.(http.Flusher); ok {
		f.Flush()
	}
}
