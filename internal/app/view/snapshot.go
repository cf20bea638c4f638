package view

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/lifespan"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/root"
	"orch/internal/task"
	"orch/internal/worker"
)

// shownRows bounds the lists of GET /queue.
const shownRows = 200

// Snapshot is httpapi.QueueSource.
type Snapshot struct {
	Sources
	Root    *root.Root
	Self    process.Identity
	Started time.Time
	Version string
	Worker  *worker.Worker
	// WorkerEnabled is what the configuration asks for, WorkerState what the supervisor says.
	WorkerEnabled bool
	WorkerState   func() lifespan.State
	Reaper        Reaper
	Reconcile     Daemon
	Alerts        func(context.Context) (api.QueueAlerts, error)
}

// Queue implements httpapi.QueueSource.
func (a Snapshot) Queue(ctx context.Context) (api.Queue, error) {
	q := api.Queue{GeneratedAt: time.Now().UTC(), Instance: a.instance(), Config: a.configState(ctx), Worker: a.workerState()}
	for _, fill := range []func(context.Context, *api.Queue) error{a.fillPaused, a.fillJobs, a.fillRunning, a.fillTasks, a.fillMerges, a.fillAgents, a.fillDaemons} {
		if err := fill(ctx, &q); err != nil {
			return api.Queue{}, err
		}
	}
	return q, nil
}

// byPerson is the code of a pause that no run has caused.
const byPerson = "paused"

const (
	statusOK  = "ok"
	statusOff = "off"
)

func (a Snapshot) instance() api.QueueInstance {
	rootID := a.Root.ID()
	return api.QueueInstance{
		ID: a.Root.InstanceID(), Host: a.Self.Host, Pid: a.Self.PID, Version: a.Version,
		StartedAt: a.Started.UTC(), RootID: &rootID, Generation: a.Root.Generation(),
	}
}

func (a Snapshot) configState(ctx context.Context) api.QueueConfig {
	state := a.Catalog.State(ctx)
	shown := api.QueueConfig{Status: state.Status, LoadedAt: orNil(state.LoadedAt.UTC())}
	if state.Err != nil {
		code := "config_invalid"
		shown.ErrorCode = &code
	}
	return shown
}

func (a Snapshot) workerState() api.QueueWorker {
	stats := a.Worker.Stats()
	shown := api.QueueWorker{
		Enabled: a.WorkerEnabled, Status: statusOf(a.WorkerState()), Lanes: map[string]api.QueueLane{},
		Stats: api.QueueWorkerStats{
			Claimed: stats.Claimed, Succeeded: stats.Succeeded, Retried: stats.Retried, Cancelled: stats.Cancelled,
			Failed: stats.Failed, Lost: stats.Lost, Released: stats.Released, Reaped: stats.Reaped, Errors: stats.Errors,
		},
	}
	for name, lane := range a.Worker.Lanes() {
		shown.Lanes[name] = api.QueueLane{Slots: lane.Slots, Busy: lane.Busy}
	}
	return shown
}

func (a Snapshot) fillPaused(ctx context.Context, q *api.Queue) error {
	paused, err := a.Pauses.Pauses(ctx)
	if err != nil {
		return err
	}
	for _, p := range paused[:min(len(paused), shownRows)] {
		shown := shownPause(p)
		if shown.Code != nil { // its reason is what a program said
			shown.Reason = *shown.Code
		}
		q.Paused = append(q.Paused, shown)
	}
	return nil
}

func (a Snapshot) fillJobs(ctx context.Context, q *api.Queue) error {
	census, err := a.Overview.Census(ctx)
	if err != nil {
		return err
	}
	counts := census.Counts
	q.Counts = api.QueueCounts{
		Queued: counts[queue.StateQueued], Running: counts[queue.StateRunning], Succeeded: counts[queue.StateSucceeded],
		Failed: counts[queue.StateFailed], Cancelled: counts[queue.StateCancelled],
	}
	for _, d := range census.Depth {
		shown := api.QueueDepth{Kind: d.Kind, Lane: d.Lane, Queued: d.Queued, Running: d.Running, Failed: d.Failed}
		if d.OldestQueued != nil {
			age := httpapi.Seconds(*d.OldestQueued)
			shown.OldestQueuedAgeS = &age
		}
		q.Depth = append(q.Depth, shown)
	}
	return nil
}

func (a Snapshot) fillRunning(ctx context.Context, q *api.Queue) error {
	running, err := a.Overview.Running(ctx, shownRows)
	if err != nil {
		return err
	}
	var tasks []int64
	var runs []uuid.UUID
	for _, r := range running {
		if r.TaskID != nil {
			tasks = append(tasks, *r.TaskID)
		}
		if r.RunID != nil {
			runs = append(runs, *r.RunID)
		}
	}
	keys, err := a.Tasks.Keys(ctx, tasks)
	if err != nil {
		return err
	}
	agents, err := a.Runs.Agents(ctx, runs)
	if err != nil {
		return err
	}
	for _, r := range running {
		q.Running = append(q.Running, shownRunning(r, keyOf(keys, r.TaskID), agents))
	}
	return nil
}

func shownRunning(r overview.Running, key string, agents map[uuid.UUID]string) api.QueueRunning {
	silence := httpapi.Seconds(r.Silence)
	shown := api.QueueRunning{
		JobID: r.ID, Kind: r.Kind, Task: orNil(key), Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, RunID: r.RunID,
		Host: r.Host, Pid: r.PID, StartedAt: r.StartedAt, HeartbeatAgeS: &silence, LeaseExpiresAt: r.LeaseExpiresAt, Phase: r.Phase,
	}
	if r.RunID != nil {
		shown.Agent = orNil(agents[*r.RunID])
	}
	var args task.JobArgs
	if json.Unmarshal(r.Args, &args) == nil {
		shown.Stage = orNil(args.Stage)
	}
	shown.Progress = shownProgress(r.Progress)
	return shown
}

// shownProgress takes only numbers out of what a job says about itself; nil when it says nothing.
func shownProgress(said json.RawMessage) *api.QueueProgress {
	var progress struct {
		api.QueueProgress

		Turns int64 `json:"turns"`
	}
	if len(said) == 0 || json.Unmarshal(said, &progress) != nil {
		return nil
	}
	if progress.Turns > 0 {
		progress.Done = progress.Turns
	}
	return &progress.QueueProgress
}

func (a Snapshot) fillTasks(ctx context.Context, q *api.Queue) error {
	counts, err := a.Tasks.Counts(ctx)
	if err != nil {
		return err
	}
	totals, err := a.Tally.Counters(ctx)
	if err != nil {
		return err
	}
	q.Tasks = api.QueueTasks{
		Active: counts.Active, Waiting: counts.Waiting, NeedsYou: counts.NeedsYou, LandedTotal: totals[task.CounterLanded],
	}
	q.Reaper.LeaseReclaimedTotal = totals[lease.CounterReclaimed]
	return nil
}

func (a Snapshot) fillMerges(ctx context.Context, q *api.Queue) error {
	waiting, err := a.Leases.Queue(ctx)
	if err != nil {
		return err
	}
	position := map[int64]int{}
	for _, w := range waiting {
		if needsYou(w) {
			q.Tasks.Active, q.Tasks.NeedsYou = q.Tasks.Active-1, q.Tasks.NeedsYou+1
		}
	}
	for _, w := range waiting[:min(len(waiting), shownRows)] {
		position[w.TaskID] = w.Position
		q.MergeQueue = append(q.MergeQueue, api.QueueMerge{
			Repo: w.Repo, Target: w.Target, Task: w.Task, Position: w.Position, Step: w.Step, Attempt: w.Tries,
			LastError: w.LastError, NeedsYou: needsYou(w), NextLookAt: w.NextLookAt, Branch: w.Branch, Method: w.Method, Base: w.Base, Head: w.Head, Land: w.Land,
			Group: w.Group,
		})
	}
	leases, err := a.Leases.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases {
		h := l.Holder
		q.Leases = append(q.Leases, api.QueueLease{
			Repo: l.Repo, Target: l.Target, Task: orNil(l.Task), Branch: orNil(l.Branch), JobID: l.JobID, Host: orNil(h.Host),
			Pid: orNil(h.PID), AcquiredAt: l.AcquiredAt, RenewedAt: l.RenewedAt, ExpiresAt: l.ExpiresAt, AgeS: httpapi.Seconds(l.Age),
			Epoch: l.Epoch, Step: orNil(l.Step), Position: position[l.TaskID],
			Holder: string(process.Probe(process.Identity{
				Host: h.Host, BootID: h.BootID, PIDNamespace: h.PIDNamespace, PID: h.PID, StartedAt: h.PIDStartedAt,
			})),
		})
	}
	return nil
}

// needsYou says of a landing what held says of its task.
func needsYou(w lease.Waiting) bool { return w.RestsFor != nil && problem.NeedsPerson(*w.RestsFor) }

func (a Snapshot) fillAgents(ctx context.Context, q *api.Queue) error {
	running, err := a.Runs.AgentsRunning(ctx)
	if err != nil {
		return err
	}
	for _, agent := range a.Catalog.Current(ctx).Agents {
		if _, runs := running[agent.Name]; !runs {
			running[agent.Name] = 0
		}
	}
	paused, err := a.pausedAgents(ctx)
	if err != nil {
		return err
	}
	for name := range paused {
		if _, runs := running[name]; !runs {
			running[name] = 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		shown := api.QueueAgent{Name: name, Running: int64(running[name])}
		if p, is := paused[name]; is {
			shown.Reason, shown.PausedUntil = new(cmp.Or(p.Code, byPerson)), p.Until
		}
		q.Agents = append(q.Agents, shown)
	}
	return nil
}
