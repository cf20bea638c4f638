// Package telegramtest is a Bot API of Telegram for tests: it takes messages as strictly as the real one. For tests only.
package telegramtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"
)

// Token is one that the server takes.
const Token = "4711:AAF-a_token_of_the_tests" //nolint:gosec // it opens nothing

// Chat is one that the server knows.
const Chat = "-1001"

// Message is one that got through.
type Message struct {
	Text string // as a person reads it, with back-quotes around code
	At   time.Time
}

// Answer is what the server says instead of taking a message.
type Answer struct {
	Status int
	Body   string
}

// Refusal is an answer of the Bot API itself.
func Refusal(status int, description string, retryAfter int) Answer {
	body := fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q`, status, description)
	if retryAfter > 0 {
		body += fmt.Sprintf(`,"parameters":{"retry_after":%d}`, retryAfter)
	}
	return Answer{status, body + "}"}
}

// Server is the Bot API.
type Server struct {
	URL       string
	Transport *http.Transport // to it; without idle connections when the test ends

	mu       sync.Mutex
	messages []Message
	tries    int
	answer   func(try int) *Answer
	untaken  string
}

// New starts a server that takes every message of Token to Chat, until the test ends.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{Transport: &http.Transport{}}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = server.URL
	tb.Cleanup(func() {
		s.Transport.CloseIdleConnections()
		server.Close()
	})
	return s
}

// AnswerWith has answer say what becomes of the try of that number, from 1 on; nil: it is taken.
func (s *Server) AnswerWith(answer func(try int) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.tries = answer, 0
}

// TakeNone has the server refuse every message that holds a text.
func (s *Server) TakeNone(with string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.untaken = with
}

// Messages lists those that got through.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Tries is how often somebody tried to send since the last AnswerWith.
func (s *Server) Tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	err := r.ParseMultipartForm(1 << 20) //nolint:gosec // bounded above
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	text, readable := read(r.FormValue("text"))
	var said *Answer
	if s.answer != nil {
		said = s.answer(s.tries)
	}
	refuse := func(status int, description string) {
		refusal := Refusal(status, description, 0)
		said = &refusal
	}
	switch {
	case said != nil:
	case err != nil:
		refuse(http.StatusBadRequest, "Bad Request: "+err.Error())
	case r.URL.Path != "/bot"+Token+"/sendMessage":
		refuse(http.StatusUnauthorized, "Unauthorized")
	case r.FormValue("chat_id") != Chat:
		refuse(http.StatusBadRequest, "Bad Request: chat not found")
	case r.FormValue("parse_mode") != "MarkdownV2" || !readable:
		refuse(http.StatusBadRequest, "Bad Request: can't parse entities")
	case s.untaken != "" && strings.Contains(text, s.untaken):
		refuse(http.StatusBadRequest, "Bad Request: something in it")
	case text == "" || len(utf16.Encode([]rune(text))) > 4096:
		refuse(http.StatusBadRequest, "Bad Request: message is too long, or empty")
	default:
		s.messages = append(s.messages, Message{Text: text, At: at})
		said = &Answer{http.StatusOK, fmt.Sprintf(`{"ok":true,"result":{"message_id":%d,"date":%d,"chat":{"id":%s,"type":"group"}}}`, len(s.messages), at.Unix(), Chat)}
	}
	w.Header().Set("Content-Type", "application/json")
	if !json.Valid([]byte(said.Body)) {
		w.Header().Set("Content-Type", "text/html")
	}
	w.WriteHeader(said.Status)
	_, _ = w.Write([]byte(said.Body))
}

// read is a text of MarkdownV2 as a person reads it; false when the Bot API would refuse it.
func read(markdown string) (string, bool) {
	var b strings.Builder
	code, escaped := false, false
	for _, r := range markdown {
		switch {
		case escaped:
			escaped = false
			b.WriteRune(r)
		case r == '\\':
			escaped = true
		case r == '`':
			code = !code
			b.WriteRune(r)
		case !code && strings.ContainsRune("_*[]()~>#+-=|{}.!", r):
			return "", false
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), !code && !escaped
}
