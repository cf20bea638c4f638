package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/alert"
	"orch/internal/db"
	"orch/internal/merge"
	"orch/internal/merge/lease"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/pause"
	"orch/internal/reaper"
	"orch/internal/task"
	"orch/internal/task/flow"
)

const (
	// shortPause is how long an agent may rest without anybody being told: limits of a minute are daily business.
	shortPause = 15 * time.Minute
	// quiet is for how long what goes on, and would be met again and again, isn't told again.
	quiet = time.Hour
	// quietWait is the same for one wait of a job, which is told once.
	quietWait = 60 * 24 * time.Hour

	restartsWithin = 10 * time.Minute
	restartsMost   = 3
	tellTimeout    = 5 * time.Second
	directTimeout  = 10 * time.Second
)

// Config is what an Alerts needs.
type Config struct {
	Outbox *alert.Outbox
	// Direct sends past the queue what can't be enqueued; nil = there is no channel, it is logged.
	Direct func(ctx context.Context, a alert.Alert) error
	// QuietReclaims says that nobody is told of reclaimed merge leases; nil = somebody is.
	QuietReclaims func(ctx context.Context) bool
	// Pipeline is the pipeline of a task, which tells whether it stopped at its landing; nil = nobody knows.
	Pipeline func(ctx context.Context, t task.Task) (flow.Pipeline, error)
	// Keys names tasks by their ids; nil = they stay unnamed.
	Keys   func(ctx context.Context, ids []int64) (map[int64]string, error)
	Host   string
	Logger *slog.Logger // nil = silent
}

// Alerts translates. It is safe for concurrent use.
type Alerts struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	restarts map[string][]time.Time // by service, within restartsWithin
	direct   map[string]time.Time   // key → when it was told directly
}

// New returns an Alerts.
func New(cfg Config) *Alerts {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Alerts{cfg: cfg, log: cfg.Logger, restarts: map[string][]time.Time{}, direct: map[string]time.Time{}}
}

type reaping struct{}

// ReapedQueue is the queue as the reaper takes jobs from it: the transaction of each taking ends with JobReapedTx, and what else it
// does isn't told.
type ReapedQueue struct {
	*queue.Queue
	*look.Store
}

// Take implements reaper.Queue.
func (q ReapedQueue) Take(ctx context.Context, seen queue.Seen, t queue.Taking) (*queue.Job, error) {
	return q.Queue.Take(context.WithValue(ctx, reaping{}, true), seen, t)
}

func isReaping(ctx context.Context) bool { return ctx.Value(reaping{}) != nil }

// TaskBlockedTx is task.StoreConfig.OnBlockedTx.
func (a *Alerts) TaskBlockedTx(ctx context.Context, tx pgx.Tx, t task.Task) error {
	if isReaping(ctx) {
		return nil
	}
	kind := alert.TaskBlocked
	if a.landing(ctx, t) {
		kind = alert.LandingParked
	}
	return a.cfg.Outbox.EnqueueTx(ctx, tx, alert.Alert{
		Kind: kind, Key: fmt.Sprintf("%d:%d", t.ID, t.UpdatedAt.UnixMicro()), Task: t.Key, Repo: t.Repo, Branch: t.Branch,
		Code: t.ReasonCode, At: t.UpdatedAt,
	})
}

// landing says whether a task is at the stage that lands it.
func (a *Alerts) landing(ctx context.Context, t task.Task) bool {
	if a.cfg.Pipeline == nil {
		return false
	}
	pipeline, err := a.cfg.Pipeline(ctx, t)
	if err != nil {
		return false // an edit took it away, which is what the task stopped for
	}
	stage, known := pipeline.Stage(t.Stage)
	return known && stage.Landing()
}

// JobFailedTx is for the queue's OnFailed, after task.Store.JobFailedTx: that one blocks the task of a stage or merge job.
func (a *Alerts) JobFailedTx(ctx context.Context, tx pgx.Tx, job queue.Job, code, _ string) error {
	if _, sends := alert.ChannelOf(job.Kind); sends || isReaping(ctx) || movesTask(job.Kind) {
		return nil
	}
	if code == "" {
		code = "job_failed"
	}
	return a.cfg.Outbox.EnqueueTx(ctx, tx, alert.Alert{
		Kind: alert.JobFailed, Key: jobKey(job.ID, job.Epoch), Repo: job.Repo, Code: code, JobID: job.ID, Host: orEmpty(job.Host),
	})
}

// LeaseReclaimedTx is lease.Config.OnReclaimedTx.
func (a *Alerts) LeaseReclaimedTx(ctx context.Context, tx pgx.Tx, r lease.Reclaimed) error {
	if a.cfg.QuietReclaims != nil && a.cfg.QuietReclaims(ctx) {
		return nil
	}
	return a.cfg.Outbox.EnqueueTx(ctx, tx, alert.Alert{
		Kind: alert.LeaseReclaimed, Key: fmt.Sprintf("%s:%s:%d", r.Repo, r.Target, r.Epoch), Task: r.Task, Repo: r.Repo, Branch: r.Branch,
		Code: r.Reason, Host: r.Holder.Host, PID: r.Holder.PID, JobID: r.JobID, RunID: name(r.RunID),
	})
}

// AgentPausedTx is roster.Config.OnPauseTx.
func (a *Alerts) AgentPausedTx(ctx context.Context, tx pgx.Tx, p pause.Pause) error {
	told := alert.Alert{Kind: alert.AgentPaused, Agent: p.Name, Code: p.Code, Reason: alert.MeaningOfPause(p.Code)}
	if p.Until == nil { // such a pause is begun once: nothing but a person ends it
		told.Key = fmt.Sprintf("%s:%s:%d", p.Name, p.Code, time.Now().UnixNano())
		return a.cfg.Outbox.EnqueueTx(ctx, tx, told)
	}
	if time.Until(*p.Until) < shortPause {
		return nil
	}
	told.Key, told.Quiet = p.Name+":"+p.Code, quiet
	told.Reason = alert.MeaningOfPause(p.Code) + ", until " + p.Until.UTC().Format("2006-01-02 15:04 UTC")
	return a.cfg.Outbox.EnqueueTx(ctx, tx, told)
}

// JobReapedTx is reaper.Config.OnReapTx. A job that goes on needs nobody: only one that failed is told (ORCH-065 FR-1.2).
func (a *Alerts) JobReapedTx(ctx context.Context, tx pgx.Tx, r reaper.Reaped) error {
	if _, sends := alert.ChannelOf(r.Kind); sends || r.Outcome != string(queue.StateFailed) {
		return nil
	}
	if !movesTask(r.Kind) {
		r.Task = "" // which goes on without it, or is over: it is the job that is tried again
	}
	return a.cfg.Outbox.EnqueueTx(ctx, tx, alert.Alert{
		Kind: alert.JobReaped, Key: jobKey(r.JobID, r.Epoch), Task: r.Task, Repo: r.Repo, Branch: r.Branch, Agent: r.Agent,
		Code: r.Reason, Host: r.Host, PID: r.PID, JobID: r.JobID, RunID: name(r.RunID),
	})
}

// JobWaits is worker.Config.OnWait. One wait of a job is told once.
func (a *Alerts) JobWaits(ctx context.Context, job queue.Job, waitingFor string, waited time.Duration) {
	if _, sends := alert.ChannelOf(job.Kind); sends || job.WaitingSince == nil || inLine(waitingFor) {
		return
	}
	told := alert.Alert{
		Kind: alert.JobWaits, Key: fmt.Sprintf("%d:%d", job.ID, job.WaitingSince.UnixMicro()), Quiet: quietWait, Repo: job.Repo, JobID: job.ID,
		Code: waitingFor, Reason: fmt.Sprintf("for %d hours, for %s", int(waited.Hours()), waitingFor),
	}
	if movesTask(job.Kind) && job.TaskID != nil && a.cfg.Keys != nil {
		if keys, err := a.cfg.Keys(ctx, []int64{*job.TaskID}); err == nil {
			told.Task = keys[*job.TaskID]
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if _, err := a.cfg.Outbox.Enqueue(ctx, told); err != nil { // in an hour it is tried again
		a.log.WarnContext(ctx, "alert not enqueued", slog.String("kind", string(told.Kind)), slog.String("code", db.Code(err)))
	}
}

// inLine says that others land meanwhile, or that a person has said why nobody does.
func inLine(waitingFor string) bool {
	return waitingFor == merge.WaitingForLease || strings.HasPrefix(waitingFor, pause.WaitingForRepo(""))
}

// MassDeath is reaper.Config.OnMassDeath: dead of all runs seem dead.
func (a *Alerts) MassDeath(ctx context.Context, dead, all int) {
	a.tell(ctx, alert.Alert{
		Kind: alert.MassDeath, Key: a.cfg.Host, Quiet: quiet, Host: a.cfg.Host, Reason: fmt.Sprintf("%d of %d", dead, all),
	})
}

// ServiceRestarted is lifespan.Config.OnRestart: three new lives of a service within ten minutes are told.
func (a *Alerts) ServiceRestarted(ctx context.Context, service string, _ int, code string) {
	lives := a.livesOf(service, time.Now())
	if lives < restartsMost {
		return
	}
	a.tell(ctx, alert.Alert{
		Kind: alert.DaemonRestarts, Key: a.cfg.Host + ":" + service, Quiet: quiet, Host: a.cfg.Host, Code: code,
		Reason: fmt.Sprintf("%s was started again %d times within ten minutes", service, lives),
	})
}

// livesOf counts a new life of a service, and those shortly before.
func (a *Alerts) livesOf(service string, now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restarts[service] = slices.DeleteFunc(append(a.restarts[service], now), func(at time.Time) bool { return now.Sub(at) >= restartsWithin })
	return len(a.restarts[service])
}

// tell enqueues what belongs to no transaction. Where that can't be, the database is part of the trouble, and it is told
// directly.
func (a *Alerts) tell(ctx context.Context, told alert.Alert) {
	enqueueing, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	_, err := a.cfg.Outbox.Enqueue(enqueueing, told)
	if err == nil || ctx.Err() != nil || !a.firstDirect(told) {
		return
	}
	if a.cfg.Direct == nil {
		a.cfg.Outbox.Log(ctx, told)
		return
	}
	sending, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	if err := a.cfg.Direct(sending, told); err != nil {
		a.mu.Lock()
		delete(a.direct, directKey(told)) // the next time it is tried again
		a.mu.Unlock()
		a.log.ErrorContext(ctx, "alert neither enqueued nor sent", slog.String("kind", string(told.Kind)), slog.Any("error", err))
	}
}

// firstDirect keeps to the Quiet of alerts that the database can't remember.
func (a *Alerts) firstDirect(told alert.Alert) bool {
	key := directKey(told)
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, was := a.direct[key]; was && time.Since(at) < told.Quiet {
		return false
	}
	a.direct[key] = time.Now()
	return true
}

func directKey(told alert.Alert) string { return string(told.Kind) + ":" + told.Key }

// movesTask says whether the task of a job of that kind stands still without it.
func movesTask(kind string) bool { return kind == task.KindStage || kind == task.KindMerge }

// jobKey names one grant of a job.
func jobKey(id int64, epoch int) string { return fmt.Sprintf("%d:%d", id, epoch) }

func name(run *uuid.UUID) string {
	if run == nil {
		return ""
	}
	return run.String()
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
