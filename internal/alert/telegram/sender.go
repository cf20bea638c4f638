package telegram

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"orch/internal/alert"
)

// Channel is the name of the channel.
const Channel = "telegram"

const (
	sendTimeout = 20 * time.Second
	maxAnswer   = 1 << 20 // bytes
	waitDefault = 5 * time.Second
	waitMost    = time.Hour
)

// Codes of what keeps a message from getting through.
const (
	CodeRefused      = "telegram_refused"      // 400: the chat isn't there, or the bot was never let in
	CodeMoved        = "telegram_chat_moved"   // 400: the group became another chat
	CodeUnauthorized = "telegram_unauthorized" // 401: the token isn't good
	CodeForbidden    = "telegram_forbidden"    // 403: the bot was put out of the chat
	CodeNotFound     = "telegram_not_found"    // 404: the token, or the address of the API, is wrong
	CodeTooMany      = "telegram_too_many"     // 429
	CodeUnreachable  = "telegram_unreachable"  // no answer
	CodeUnavailable  = "telegram_unavailable"  // an answer that isn't the API's, or says that it is broken
)

// Error is why a message didn't get through. It has a code and nothing else: what it comes from may hold the token.
type Error struct {
	Code  string
	After time.Duration // Telegram asks to wait for so long; zero = it doesn't
	Final bool          // until a person has changed something
}

// Error implements error.
func (e *Error) Error() string { return "send to telegram: " + e.Code }

// Config is what a Sender needs.
type Config struct {
	Token  string
	ChatID string // a number, or @channel
	// ServerURL is where the Bot API is; empty = https://api.telegram.org.
	ServerURL string
	// Redact takes secrets out of a text; nil = there are none.
	Redact func(text string) string
	// Transport carries the requests; nil = that of net/http, with the proxy of the environment.
	Transport http.RoundTripper
}

var (
	errNoChat   = errors.New("make a sender for telegram: it takes a token and a chat")
	errNoServer = errors.New("make a sender for telegram: the address of its server can't be used")
)

// Sender sends messages. It is safe for concurrent use.
type Sender struct {
	bot    *bot.Bot
	chat   string
	redact func(string) string
}

// New makes a Sender. It asks nobody anything.
func New(cfg Config) (*Sender, error) {
	if cfg.Redact == nil {
		cfg.Redact = func(text string) string { return text }
	}
	options := []bot.Option{
		bot.WithSkipGetMe(), bot.WithHTTPClient(sendTimeout, newClient(cfg.Transport)), bot.WithErrorsHandler(func(error) {}),
	}
	if cfg.ServerURL != "" {
		if u, err := url.Parse(cfg.ServerURL); err != nil || u.Host == "" { // the library would leave a goroutine behind at each message
			return nil, errNoServer
		}
		options = append(options, bot.WithServerURL(strings.TrimRight(cfg.ServerURL, "/")))
	}
	b, err := bot.New(cfg.Token, options...)
	if err != nil || cfg.ChatID == "" {
		return nil, errNoChat
	}
	return &Sender{bot: b, chat: cfg.ChatID, redact: cfg.Redact}, nil
}

// Send sends an alert once, at once. Its error is an *Error, or the cause of ctx's end.
func (s *Sender) Send(ctx context.Context, a alert.Alert) error {
	return s.SendText(ctx, a.Text(alert.MaxText))
}

// SendText is Send of a message that has no more than 4096 units of UTF-16.
func (s *Sender) SendText(ctx context.Context, text string) error {
	sending, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	off := true
	_, err := s.bot.SendMessage(sending, &bot.SendMessageParams{
		ChatID: s.chat, Text: escape(s.redact(text)), ParseMode: models.ParseModeMarkdown,
		LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: &off},
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return classify(err)
}

// classify makes an error that says nothing of the request, which has the token in it.
func classify(err error) *Error {
	if later, ok := errors.AsType[*bot.TooManyRequestsError](err); ok {
		after := time.Duration(later.RetryAfter) * time.Second
		if after <= 0 {
			after = waitDefault
		}
		return &Error{Code: CodeTooMany, After: min(after, waitMost)}
	}
	if _, ok := errors.AsType[*bot.MigrateError](err); ok {
		return &Error{Code: CodeMoved, Final: true}
	}
	for _, refusal := range []struct {
		is   error
		code string
	}{
		{bot.ErrorBadRequest, CodeRefused}, {bot.ErrorUnauthorized, CodeUnauthorized}, {bot.ErrorForbidden, CodeForbidden}, {bot.ErrorNotFound, CodeNotFound},
	} {
		if errors.Is(err, refusal.is) {
			return &Error{Code: refusal.code, Final: true}
		}
	}
	if _, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeUnreachable}
	}
	return &Error{Code: CodeUnavailable}
}

// client is an http.Client that reads no more than it needs and goes nowhere else.
type client struct{ http.Client }

func newClient(transport http.RoundTripper) *client {
	return &client{http.Client{
		Transport: transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do implements bot.HttpClient.
func (c *client) Do(request *http.Request) (*http.Response, error) {
	request.Close = true                  // net/http prints what comes on an idle connection, which may repeat the address, past every log of orch
	response, err := c.Client.Do(request) //nolint:gosec // the operator says where the Bot API is
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswer), response.Body}
	return response, nil
}
