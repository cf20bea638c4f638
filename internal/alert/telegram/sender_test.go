package telegram_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"orch/internal/alert"
	"orch/internal/alert/telegram"
	"orch/internal/alert/telegram/telegramtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blocked is an alert with a bit of everything.
func blocked() alert.Alert {
	return alert.Alert{
		Kind: alert.TaskBlocked, Key: "1:1", Task: "demo-65", Repo: "demo", Branch: "orch/demo-65", Agent: "coder_v2.1", Code: "crashed",
		Host: "build-1.example.com", JobID: 12, RunID: "0198-ab", PID: 4711, At: time.Unix(1e9, 0),
	}
}

func newSender(t *testing.T, s *telegramtest.Server, change ...func(*telegram.Config)) *telegram.Sender {
	t.Helper()
	cfg := telegram.Config{Token: telegramtest.Token, ChatID: telegramtest.Chat, ServerURL: s.URL, Transport: s.Transport}
	for _, c := range change {
		c(&cfg)
	}
	sender, err := telegram.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

func TestMessageArrivesAsItWasMeant(t *testing.T) {
	t.Parallel()
	server := telegramtest.New(t)
	if err := newSender(t, server).Send(t.Context(), blocked()); err != nil {
		t.Fatal(err)
	}
	want := `Task demo-65 needs you: its agent or what watched it died, and no attempt is left.
task demo-65, repository demo, branch orch/demo-65
job 12, run 0198-ab, agent coder_v2.1, pid 4711, host build-1.example.com
code crashed, at 2001-09-09 01:46 UTC
Look: ` + "`orch task show demo-65`" + `
First: see the memory of its host
Then: ` + "`orch task retry demo-65`, or `orch task cancel demo-65`"
	if got := server.Messages(); len(got) != 1 || got[0].Text != want {
		t.Errorf("got %+v", got)
	}
}

func TestTextIsCutAndEscaped(t *testing.T) {
	t.Parallel()
	server := telegramtest.New(t)
	sender := newSender(t, server)
	hostile := "_*[]()~`>#+-=|{}.!\\\x00\x1b[31m\u202e\xff" + strings.Repeat("!", 5000)
	for _, a := range []alert.Alert{
		{Kind: "unheard of", Reason: hostile},
		{Kind: alert.TaskBlocked, Task: hostile, Repo: hostile, Branch: hostile, Agent: hostile, Code: hostile, Reason: hostile, Host: hostile, RunID: hostile},
		{Kind: alert.JobReaped, Task: "a`b\\", Host: `C:\`, JobID: 1},
	} {
		if err := sender.Send(t.Context(), a); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, m := range server.Messages() {
		if n := utf8.RuneCountInString(m.Text); n > alert.MaxText || strings.ContainsAny(m.Text, "\x00\x1b\u202e") {
			t.Errorf("%d characters: %q", n, m.Text)
		}
	}
	if n := len(server.Messages()); n != 3 {
		t.Errorf("%d got through", n)
	}
}

func TestSecretIsTakenOutOfAMessage(t *testing.T) {
	t.Parallel()
	server := telegramtest.New(t)
	sender := newSender(t, server, func(c *telegram.Config) {
		c.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2", "[NAME]") }
	})
	a := blocked()
	a.Branch = "hunter2"
	if err := sender.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if text := server.Messages()[0].Text; strings.Contains(text, "hunter2") || !strings.Contains(text, "branch [NAME]") {
		t.Error(text)
	}
}

func TestAnswersOfTelegramAreCodes(t *testing.T) {
	t.Parallel()
	html := func(status int) telegramtest.Answer {
		return telegramtest.Answer{Status: status, Body: "<html>oops</html>"}
	}
	for name, c := range map[string]struct {
		answer telegramtest.Answer
		want   telegram.Error
	}{
		"chat unknown":      {telegramtest.Refusal(400, "Bad Request: chat not found", 0), telegram.Error{Code: telegram.CodeRefused, Final: true}},
		"group moved":       {telegramtest.Answer{Status: 400, Body: `{"ok":false,"error_code":400,"description":"moved","parameters":{"migrate_to_chat_id":-1002}}`}, telegram.Error{Code: telegram.CodeMoved, Final: true}},
		"token refused":     {telegramtest.Refusal(401, "Unauthorized", 0), telegram.Error{Code: telegram.CodeUnauthorized, Final: true}},
		"bot put out":       {telegramtest.Refusal(403, "Forbidden: bot was kicked", 0), telegram.Error{Code: telegram.CodeForbidden, Final: true}},
		"no such bot":       {telegramtest.Refusal(404, "Not Found", 0), telegram.Error{Code: telegram.CodeNotFound, Final: true}},
		"too fast":          {telegramtest.Refusal(429, "Too Many Requests", 17), telegram.Error{Code: telegram.CodeTooMany, After: 17 * time.Second}},
		"too fast, no time": {telegramtest.Refusal(429, "Too Many Requests", 0), telegram.Error{Code: telegram.CodeTooMany, After: 5 * time.Second}},
		"far too fast":      {telegramtest.Refusal(429, "Too Many Requests", 1e6), telegram.Error{Code: telegram.CodeTooMany, After: time.Hour}},
		"broken":            {telegramtest.Refusal(500, "Internal", 0), telegram.Error{Code: telegram.CodeUnavailable}},
		"a proxy's page":    {html(502), telegram.Error{Code: telegram.CodeUnavailable}},
		"a portal's page":   {html(200), telegram.Error{Code: telegram.CodeUnavailable}},
		"a flood":           {telegramtest.Answer{Status: 200, Body: strings.Repeat(" ", 4<<20)}, telegram.Error{Code: telegram.CodeUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := telegramtest.New(t)
			server.AnswerWith(func(int) *telegramtest.Answer { return &c.answer })
			var got *telegram.Error
			if err := newSender(t, server).Send(t.Context(), blocked()); !errors.As(err, &got) || *got != c.want {
				t.Errorf("%+v, want %+v", err, c.want)
			}
		})
	}
}

// What net/http says of a request names its address, which has the token in it; so do the headers of one that follows.
func TestTokenIsInNoErrorAndGoesNowhereElse(t *testing.T) {
	t.Parallel()
	server := telegramtest.New(t)
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere = append(elsewhere, r.Referer()+r.URL.Path) }))
	t.Cleanup(other.Close)
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(redirects.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, url := range map[string]string{
		"nobody there": closed.URL, "no such scheme": "gopher://127.0.0.1", "it redirects": redirects.URL,
	} {
		err := newSender(t, server, func(c *telegram.Config) { c.ServerURL = url }).Send(t.Context(), blocked())
		if err == nil || strings.Contains(err.Error(), "4711") || strings.Contains(err.Error(), "127.0.0.1") || errors.Unwrap(err) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(elsewhere) > 0 {
		t.Errorf("it went on to %q", elsewhere)
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the lease is lost")
	cancel(cause)
	if err := newSender(t, server).Send(cancelled, blocked()); !errors.Is(err, cause) || strings.Contains(err.Error(), "4711") {
		t.Errorf("a context that is over: %v", err)
	}
	if _, err := telegram.New(telegram.Config{Token: telegramtest.Token}); err == nil || strings.Contains(err.Error(), "4711") {
		t.Errorf("no chat: %v", err)
	}
	for _, cfg := range []telegram.Config{
		{ChatID: "1"}, {Token: telegramtest.Token, ChatID: "1", ServerURL: "http://\x7f"}, {Token: telegramtest.Token, ChatID: "1", ServerURL: "localhost"},
	} {
		if _, err := telegram.New(cfg); err == nil || strings.Contains(err.Error(), "4711") {
			t.Errorf("%v", err)
		}
	}
}

// What a server sends on a connection that is kept, net/http prints to the standard error by itself.
func TestServerThatGoesOnTalkingIsNotListenedTo(t *testing.T) {
	t.Parallel()
	server := telegramtest.New(t)
	kept := make(chan bool, 1)
	talks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept <- !r.Close
		_, _ = io.WriteString(w, `{"ok":true,"result":{}}`)
	}))
	t.Cleanup(talks.Close)
	if err := newSender(t, server, func(c *telegram.Config) { c.ServerURL = talks.URL }).Send(t.Context(), blocked()); err != nil {
		t.Fatal(err)
	}
	if <-kept {
		t.Error("the connection is kept")
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a `b` c", "`", `\`)
	f.Fuzz(func(t *testing.T, task, host, reason string) {
		server := telegramtest.New(t)
		if err := newSender(t, server).Send(t.Context(), alert.Alert{Kind: alert.TaskBlocked, Task: task, Host: host, Reason: reason}); err != nil {
			t.Error(err)
		}
	})
}
