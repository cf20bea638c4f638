package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const (
	botToken = "4711:ofTheNight"
	botChat  = "-1001"
)

// telegram is a server that takes what a bot sends, but not always at once.
type telegram struct {
	url string

	mu       sync.Mutex
	requests int
	texts    []string // of messages that it took
	wrong    []string // requests that it can't take
}

func newTelegram(t *testing.T) *telegram {
	t.Helper()
	bot := &telegram{}
	server := httptest.NewServer(bot)
	t.Cleanup(server.Close)
	bot.url = server.URL
	return bot
}

func (b *telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
	switch {
	case r.URL.Path != "/bot"+botToken+"/sendMessage" || r.FormValue("chat_id") != botChat || r.FormValue("text") == "":
		b.wrong = append(b.wrong, r.Method+" "+strings.ReplaceAll(r.URL.Path, botToken, "TOKEN")+" to "+r.FormValue("chat_id"))
		answer(http.StatusBadRequest, `{"ok":false,"error_code":400,"description":"Bad Request"}`)
	case b.requests%5 == 3:
		answer(http.StatusTooManyRequests, `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}`)
	case b.requests%7 == 6:
		answer(http.StatusBadGateway, `{"ok":false,"error_code":502,"description":"Bad Gateway"}`)
	default:
		b.texts = append(b.texts, r.FormValue("text"))
		answer(http.StatusOK, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":-1001,"type":"supergroup"},"text":"."}}`)
	}
}

// took is what it has taken so far.
func (b *telegram) took() (texts, wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.texts...), append([]string(nil), b.wrong...)
}
