package alert

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"orch/internal/db"
	"orch/internal/lifespan"
)

const (
	defaultAfter    = 5 * time.Minute
	defaultInterval = 30 * time.Second
	probeTimeout    = 20 * time.Second
	giveUpEvery     = time.Hour
	giveUpTimeout   = time.Minute
)

// WatchConfig is what a Watch needs. Zero durations get defaults.
type WatchConfig struct {
	Probe    func(ctx context.Context) (Health, error) // Outbox.Probe
	Direct   func(ctx context.Context, a Alert) error  // sends past the queue; nil = it is logged only
	GiveUp   func(ctx context.Context) error           // Outbox.GiveUp, called once an hour; nil = never
	Host     string
	Interval time.Duration // default 30 s
	After    time.Duration // how long a thing is wrong before it is told; default 5 min
	Beat     func()        // called once a tick; may be nil
	Code     func(error) string
	Logger   *slog.Logger // nil = silent
}

// Watch tells directly of what keeps the queue from telling. Each process that has a channel may run one.
type Watch struct {
	cfg      WatchConfig
	log      *slog.Logger
	database trouble
	queue    trouble
	well     time.Time // since when the database has answered; zero while it doesn't
	code     string    // of the last message that didn't get through
	gaveUp   time.Time // when it was looked last for what nobody sends
}

// trouble is something that is wrong, or isn't.
type trouble struct {
	since time.Time // zero while it isn't
	told  bool
}

// NewWatch makes a Watch that has seen nothing.
func NewWatch(cfg WatchConfig) *Watch {
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.After <= 0 {
		cfg.After = defaultAfter
	}
	if cfg.Beat == nil {
		cfg.Beat = func() {}
	}
	if cfg.Code == nil {
		cfg.Code = db.Code
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watch{cfg: cfg, log: cfg.Logger}
}

// Run looks every interval until ctx is over. It is a service of lifespan.
func (w *Watch) Run(ctx context.Context, ready func()) error {
	ready()
	w.gaveUp = time.Now() // who has a channel is given time to begin
	ticker := time.NewTicker(w.cfg.Interval)
	defer ticker.Stop()
	for {
		_ = lifespan.Guard(w.log, "alert watch", func() error { w.tick(ctx); return nil }) //nolint:contextcheck // a guard takes no context
		w.cfg.Beat()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *Watch) tick(ctx context.Context) {
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	health, err := w.cfg.Probe(probing)
	cancel()
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if w.database.lasts(now, err != nil, w.cfg.After) {
		w.tell(ctx, &w.database, Alert{Kind: DatabaseUnreachable, Code: w.cfg.Code(err), Reason: "it hasn't answered for " + spoken(now.Sub(w.database.since))})
	}
	if err != nil {
		w.well = time.Time{}
		return // nothing is known of the queue; it isn't well for that
	}
	if w.well.IsZero() {
		w.well = now
	}
	// A crowd of alerts goes out one a second, and while the channel is away they are tried in vain: the last of them is late,
	// but the queue moves. It needs a moment when the database is back, too.
	stuck := health.Overdue >= w.cfg.After && health.Tried >= w.cfg.After && now.Sub(w.well) >= w.cfg.After
	if w.queue.lasts(now, stuck, 0) {
		w.tell(ctx, &w.queue, Alert{Kind: QueueStuck, Reason: "an alert has waited for " + spoken(health.Overdue) + ", and no worker sends it"})
	}
	if w.cfg.GiveUp != nil && now.Sub(w.gaveUp) >= giveUpEvery {
		w.gaveUp = now
		w.giveUp(ctx)
	}
}

func (w *Watch) giveUp(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, giveUpTimeout)
	defer cancel()
	if err := w.cfg.GiveUp(bounded); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "alerts that nobody sends aren't given up yet", slog.String("code", w.cfg.Code(err)), slog.Any("error", err))
	}
}

// lasts says whether something has been wrong for long enough to be told, and wasn't told yet.
func (t *trouble) lasts(now time.Time, wrong bool, after time.Duration) bool {
	if !wrong {
		*t = trouble{}
		return false
	}
	if t.since.IsZero() {
		t.since = now
	}
	return !t.told && now.Sub(t.since) >= after
}

// tell says it until it was said.
func (w *Watch) tell(ctx context.Context, t *trouble, a Alert) {
	a.Host, a.At = w.cfg.Host, time.Now()
	if w.cfg.Direct == nil {
		t.told = true
		w.log.WarnContext(ctx, "needs a person", slog.String("what", a.clean().headline()), slog.String("kind", string(a.Kind)), slog.String("code", a.Code))
		return
	}
	err := w.cfg.Direct(ctx, a)
	if ctx.Err() != nil {
		return
	}
	code := ""
	if err != nil {
		code = err.Error()
	}
	t.told = err == nil
	if code != w.code && err != nil {
		w.log.WarnContext(ctx, "direct alert not sent, tried again", slog.String("kind", string(a.Kind)), slog.Any("error", err))
	}
	if err == nil {
		w.log.WarnContext(ctx, "told directly", slog.String("kind", string(a.Kind)), slog.String("code", a.Code))
	}
	w.code = code
}

// spoken is a duration as people say it.
func spoken(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d minutes", int(d.Round(time.Minute)/time.Minute))
	}
	return fmt.Sprintf("%.1f hours", d.Hours())
}
