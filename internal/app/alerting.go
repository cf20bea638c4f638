package app

import (
	"context"

	"github.com/jackc/pgx/v5"

	"orch/api"
	"orch/internal/alert"
	"orch/internal/alert/telegram"
	"orch/internal/app/alerts"
	"orch/internal/db"
	"orch/internal/process/redact"
	"orch/internal/queue"
	"orch/internal/reaper"
)

// alerting is what tells a person of what needs one.
type alerting struct {
	*alerts.Alerts

	outbox *alert.Outbox
	sender *telegram.Sender // nil without a channel
}

// wireAlerts makes it. Whoever has something to tell is wired after it.
func (s *system) wireAlerts(opts Options) error {
	cfg, log := opts.Config, opts.Logger
	var channels []string
	told := &alerting{}
	if cfg.Alert.Telegram() {
		sender, err := telegram.New(telegram.Config{
			Token: cfg.Alert.Token.Reveal(), ChatID: cfg.Alert.ChatID, ServerURL: cfg.Alert.APIURL, Redact: redact.NewSet(secretsOf(cfg)).String,
		})
		if err != nil {
			return err
		}
		told.sender, channels = sender, []string{telegram.Channel}
	}
	told.outbox = alert.NewOutbox(alert.Config{Pool: s.pool, Channels: channels, Known: []string{telegram.Channel}, Logger: log})
	told.Alerts = alerts.New(alerts.Config{
		Outbox: told.outbox, Direct: told.direct(), Host: s.self.Host, Logger: log,
		QuietReclaims: func(ctx context.Context) bool { return s.catalog.Current(ctx).Alerts.QuietReclaims },
		Pipeline:      s.catalog.Pipeline,
		Keys:          func(ctx context.Context, ids []int64) (map[int64]string, error) { return s.tasks.Keys(ctx, ids) },
	})
	s.alerts = told
	return nil
}

// direct sends past the queue; nil without a channel.
func (a *alerting) direct() func(context.Context, alert.Alert) error {
	if a.sender == nil {
		return nil
	}
	return a.sender.Send
}

// jobFailedTx is queue.Config.OnFailed: the task of the job is moved first, and what that tells isn't told twice.
func (s *system) jobFailedTx(ctx context.Context, tx pgx.Tx, job queue.Job, code, message string) error {
	if err := s.tasks.JobFailedTx(ctx, tx, job, code, message); err != nil {
		return err
	}
	return s.alerts.JobFailedTx(ctx, tx, job, code, message)
}

// shown is what GET /queue says of alerts.
func (a *alerting) shown(ctx context.Context) (api.QueueAlerts, error) {
	seen, err := a.outbox.Snapshot(ctx)
	if err != nil {
		return api.QueueAlerts{}, err
	}
	shown := api.QueueAlerts{Channel: seen.Channel, Status: string(seen.Status), Pending: seen.Pending}
	if seen.LastError != "" {
		shown.LastError = &seen.LastError
	}
	return shown, nil
}

// describe names tasks to the reaper.
func (s *system) describe(ctx context.Context, ids []int64) (map[int64]reaper.Subject, error) {
	names, err := s.tasks.Names(ctx, ids)
	subjects := make(map[int64]reaper.Subject, len(names))
	for id, n := range names {
		subjects[id] = reaper.Subject{Task: n.Key, Repo: n.Repo, Branch: n.Branch}
	}
	return subjects, err
}

// restarted is lifespan.Config.OnRestart. Before there is a system nobody can be told.
func (s *server) restarted(ctx context.Context, service string, restarts int, code string) {
	if sys := s.system.Load(); sys != nil {
		sys.alerts.ServiceRestarted(ctx, service, restarts, code)
	}
}

// runAlertWatch tells directly when the database or the queue itself keeps alerts from being sent.
func (s *server) runAlertWatch(ctx context.Context, ready func()) error {
	a := s.system.Load().alerts
	return alert.NewWatch(alert.WatchConfig{
		Probe: a.outbox.Probe, Direct: a.direct(), GiveUp: a.outbox.GiveUp, Host: s.system.Load().self.Host, Interval: alertWatchEvery,
		Beat: func() { s.beat(serviceAlertWatch) }, Code: db.Code, Logger: s.log,
	}).Run(ctx, ready)
}
