package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/agent"
	"orch/internal/agent/usage"
	"orch/internal/app/catalog"
	"orch/internal/config/orchyaml"
	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/stage"
	"orch/internal/task"
)

// lookAgain is when a job looks again whose wait a person may end in a way that doesn't wake it.
const lookAgain = 10 * time.Minute

// Config says what a Roster needs. All but OnPauseTx and Logger is required.
type Config struct {
	Runs    *agent.Runs
	Catalog interface {
		Plan(ctx context.Context, t task.Task) (catalog.Plan, error)
	}
	Pauses *pause.Store
	Tasks  *task.Store
	Usage  *usage.Store
	// Alone does something to the files of a task while nobody else does.
	Alone func(ctx context.Context, l *queue.Lease, taskID int64, fn func() error) error
	// OnPauseTx is called in the transaction that pauses an agent for all tasks, e.g. to enqueue an alert. It may be nil.
	OnPauseTx func(ctx context.Context, tx pgx.Tx, p pause.Pause) error
	Logger    *slog.Logger // nil = silent
}

// Roster is stage.Agents.
type Roster struct {
	cfg Config
	log *slog.Logger

	mu   sync.Mutex
	told map[string]time.Time // budgets that are used up, until when that is known
}

// New returns a roster.
func New(cfg Config) *Roster {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Roster{cfg: cfg, log: cfg.Logger, told: map[string]time.Time{}}
}

// Run implements stage.Agents.
func (r *Roster) Run(ctx context.Context, l *queue.Lease, run stage.AgentRun) (stage.AgentResult, error) {
	result, err := r.cfg.Runs.Execute(ctx, l, agent.Request{
		Purpose: agent.PurposeAgent, Key: run.Key, TaskID: run.Task.ID, Stage: run.Stage, Round: run.Round,
		Start: func(ctx context.Context) (agent.Program, error) { return r.start(ctx, l, run) },
	})
	if err != nil {
		return stage.AgentResult{}, err
	}
	return r.result(ctx, run, result)
}

// start chooses an agent and makes ready for a new run of it.
func (r *Roster) start(ctx context.Context, l *queue.Lease, run stage.AgentRun) (agent.Program, error) {
	plan, err := r.cfg.Catalog.Plan(ctx, run.Task)
	if err != nil {
		return agent.Program{}, err
	}
	entry, err := r.choose(ctx, plan, run)
	if err != nil {
		return agent.Program{}, err
	}
	if err := r.afford(ctx, plan, entry.Name, run.Task); err != nil {
		return agent.Program{}, err
	}
	return r.ready(ctx, l, plan.Setup, entry, run)
}

// choose answers the first agent of the stage's chain of fallbacks that isn't paused.
func (r *Roster) choose(ctx context.Context, plan catalog.Plan, run stage.AgentRun) (orchyaml.Agent, error) {
	chain := chainOf(plan, run.Agent)
	if len(chain) == 0 {
		return orchyaml.Agent{}, queue.Terminal("agent_unknown", fmt.Errorf(
			"no agent is called %q: define it in orch.yaml, then `orch task retry %s`", run.Agent, run.Task.Key))
	}
	paused, err := r.paused(ctx, chain)
	if err != nil {
		return orchyaml.Agent{}, err
	}
	for _, entry := range chain {
		if _, is := paused[entry.Name]; !is {
			return entry, nil
		}
	}
	return orchyaml.Agent{}, rest(chain, paused, time.Now())
}

// chainOf lists an agent and its fallbacks, as far as they are defined.
func chainOf(plan catalog.Plan, name string) []orchyaml.Agent {
	var chain []orchyaml.Agent
	for name != "" {
		entry, known := plan.Agents[name]
		if !known || slices.ContainsFunc(chain, func(a orchyaml.Agent) bool { return a.Name == name }) {
			break
		}
		chain = append(chain, entry)
		name = entry.Fallback
	}
	return chain
}

// paused answers which agents of a chain are paused now.
func (r *Roster) paused(ctx context.Context, chain []orchyaml.Agent) (map[string]pause.Pause, error) {
	names := make([]string, 0, len(chain))
	for _, entry := range chain {
		names = append(names, entry.Name)
	}
	pauses, err := r.cfg.Pauses.AgentPauses(ctx, names)
	if err != nil {
		return nil, err
	}
	paused := make(map[string]pause.Pause, len(pauses))
	for _, p := range pauses {
		paused[p.Name] = p
	}
	return paused, nil
}

// rest is how long a job waits of which all agents are paused. Who resumes one wakes it.
func rest(chain []orchyaml.Agent, paused map[string]pause.Pause, now time.Time) *queue.SnoozeError {
	after := lookAgain
	for _, entry := range chain {
		if until := paused[entry.Name].Until; until != nil {
			after = min(after, max(until.Sub(now), time.Second))
		}
	}
	return &queue.SnoozeError{After: after, WaitingFor: pause.WaitingForAgent(chain[0].Name)}
}

// afford holds what was used against the budgets for another run.
func (r *Roster) afford(ctx context.Context, plan catalog.Plan, name string, t task.Task) error {
	allowed, since, err := r.allowed(ctx, t.ID)
	if err != nil {
		return err
	}
	spent, err := r.cfg.Usage.Spent(ctx, t.ID, name, since)
	if err != nil {
		return err
	}
	if spent.Runs, err = r.cfg.Runs.CountAgentRuns(ctx, t.ID); err != nil {
		return err
	}
	spent.Retries = allowed
	limits := plan.LimitsOf(name)
	limits.Run = plan.LimitsOf(spent.LastAgent).Run
	over, is := limits.Over(spent, t.Key)
	switch {
	case !is:
		return nil
	case over.Waits:
		now := time.Now()
		if r.tell(over.Code+" "+name, now) {
			r.log.WarnContext(ctx, "budget is used up, jobs wait", slog.String("code", over.Code), slog.String("agent", name),
				slog.String("reason", over.Reason))
		}
		return &queue.SnoozeError{After: min(lookAgain, max(usage.NextDay(now).Sub(now), time.Second)), WaitingFor: over.Code}
	default:
		return &stage.BlockError{Code: over.Code, Reason: over.Reason}
	}
}

// tell says whether a budget of the day is news: hundreds of jobs may wait because of one.
func (r *Roster) tell(budget string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.told, func(_ string, until time.Time) bool { return !now.Before(until) })
	_, known := r.told[budget]
	r.told[budget] = usage.NextDay(now)
	return !known
}

// allowed answers how often a person let the task go on, and when one last allowed it to use more than it had.
func (r *Roster) allowed(ctx context.Context, taskID int64) (times int, since time.Time, err error) {
	for _, kind := range []task.EventKind{task.EventRetried, task.EventAnswered} {
		events, err := r.cfg.Tasks.EventsOf(ctx, taskID, kind)
		if err != nil {
			return 0, time.Time{}, err
		}
		times += len(events)
		for _, event := range events {
			if usage.PerPerson(codeOf(event)) {
				since = event.At
			}
		}
	}
	return times, since, nil
}

// PauseTx implements stage.PauseFunc.
func (r *Roster) PauseTx(ctx context.Context, tx pgx.Tx, p stage.Pause) error {
	paused := pause.Pause{Scope: pause.Agent, Name: p.Agent, Code: p.Code, Reason: p.Reason, Actor: task.System}
	until := slog.String("until", "a person resumes it")
	if !p.Until.IsZero() {
		paused.Until = &p.Until
		until = slog.Time("until", p.Until.UTC())
	}
	changed, err := pause.AgentTx(ctx, tx, paused)
	if err != nil || !changed {
		return err
	}
	r.log.ErrorContext(ctx, "agent is paused for all tasks", slog.String("agent", p.Agent), slog.String("code", p.Code),
		until, slog.String("reason", p.Reason))
	if r.cfg.OnPauseTx == nil {
		return nil
	}
	return r.cfg.OnPauseTx(ctx, tx, paused)
}

var errNoPreset = errors.New("there is no such preset")
