package telegram

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"orch/internal/alert"
	"orch/internal/queue"
)

// Kind is the kind of the jobs that a Handler works on.
const Kind = alert.KindPrefix + Channel

// spacing is how long a job waits before it sends: a chat takes one message a second.
const spacing = time.Second

// HandlerConfig is what a Handler needs.
type HandlerConfig struct {
	Sender  *Sender
	Spacing time.Duration // between two messages, at least; zero = a second
	Logger  *slog.Logger  // nil = silent
}

// Handler sends the alerts of the queue.
type Handler struct {
	sender  *Sender
	spacing time.Duration
	log     *slog.Logger

	mu   sync.Mutex
	held held
}

// held is for how long Telegram wants to hear nothing. The job that it said so to is the first to ask again.
type held struct {
	job   int64
	until time.Time
}

// NewHandler makes a Handler.
func NewHandler(cfg HandlerConfig) *Handler {
	if cfg.Spacing <= 0 {
		cfg.Spacing = spacing
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{sender: cfg.Sender, spacing: cfg.Spacing, log: cfg.Logger}
}

// Run implements worker.Handler.
func (h *Handler) Run(ctx context.Context, l *queue.Lease) error {
	job := l.Job()
	turn, err := alert.NewTurn(l, Channel)
	if err != nil {
		return err
	}
	if wait := h.holds(job.ID); wait > 0 {
		return &queue.SnoozeError{After: wait, WaitingFor: CodeTooMany}
	}
	wait, err := turn.Wait(ctx)
	if err != nil {
		return err
	}
	if wait > 0 {
		return &queue.SnoozeError{After: wait, WaitingFor: alert.WaitingForSum}
	}
	timer := time.NewTimer(h.spacing)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.Stopping():
		return queue.ErrStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return h.send(ctx, l, turn)
}

// send sends what a turn tells. That it can't be noted how an alert went is no reason to send it again, unless others went with
// it, whose jobs wait for that.
func (h *Handler) send(ctx context.Context, l *queue.Lease, turn *alert.Turn) error {
	text, err := turn.Text(ctx)
	if err != nil {
		return err
	}
	err = h.sender.SendText(ctx, text)
	var refused *Error
	if errors.As(err, &refused) && refused.Code == CodeRefused && !turn.Alone() {
		// It may be one of them that isn't taken: none of the others is to be lost with it.
		err, refused = h.sender.SendText(ctx, turn.Only()), nil
	}
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	if refused == nil {
		h.hold(held{})
		err := turn.Told(ctx)
		if err != nil && turn.Alone() {
			h.unnoted(ctx, l, err)
			return nil
		}
		return err
	}
	h.note(ctx, l, refused.Code)
	return h.failed(ctx, l.Job(), turn.Alert(), refused)
}

// holds says for how long the chat wants to hear nothing of a job: in a crowd of alerts each would be refused by itself, which
// makes the time longer.
func (h *Handler) holds(job int64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if job == h.held.job {
		return 0
	}
	return time.Until(h.held.until)
}

func (h *Handler) hold(until held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = until
}

// failed says how the job goes on after a message that didn't get through.
func (h *Handler) failed(ctx context.Context, job queue.Job, a alert.Alert, refused *Error) error {
	if refused.After > 0 {
		h.hold(held{job.ID, time.Now().Add(refused.After)})
		return &queue.SnoozeError{After: refused.After, WaitingFor: refused.Code}
	}
	if refused.Final || job.Attempt >= job.MaxAttempts {
		h.log.ErrorContext(ctx, "alert dropped", slog.String("code", refused.Code), slog.String("what_to_do", hint(refused.Code)), slog.Int64("job_id", job.ID),
			slog.String("kind", string(a.Kind)), slog.String("task", a.Task), slog.Int64("about_job_id", a.JobID))
	}
	return &queue.Failure{Code: refused.Code, Message: hint(refused.Code), Terminal: refused.Final}
}

// note keeps why the message didn't get through.
func (h *Handler) note(ctx context.Context, l *queue.Lease, code string) {
	if err := alert.NoteSent(ctx, l, Channel, code); err != nil {
		h.unnoted(ctx, l, err)
	}
}

func (h *Handler) unnoted(ctx context.Context, l *queue.Lease, err error) {
	h.log.DebugContext(ctx, "how an alert went isn't noted", slog.Int64("job_id", l.Job().ID), slog.Any("error", err))
}

// hint is what a person does about a code.
func hint(code string) string {
	switch code {
	case CodeRefused:
		return "write to the bot once, or add it to the group, and see that ORCH_TELEGRAM_CHAT_ID is that chat"
	case CodeMoved:
		return "the group has become another chat: set ORCH_TELEGRAM_CHAT_ID to its new number"
	case CodeUnauthorized:
		return "ask BotFather for a token, and set ORCH_TELEGRAM_BOT_TOKEN to it"
	case CodeForbidden:
		return "let the bot into the chat of ORCH_TELEGRAM_CHAT_ID again"
	case CodeNotFound:
		return "see that ORCH_TELEGRAM_BOT_TOKEN is whole, and that ORCH_TELEGRAM_API_URL is a server of the Bot API"
	default:
		return "see that this host reaches ORCH_TELEGRAM_API_URL"
	}
}
