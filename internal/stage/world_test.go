package stage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/gate"
	"orch/internal/queue"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// world is a bench with handlers on a real repository: workspaces are clones, agents are shell scripts, the gates are
// the real ones.
type world struct {
	*bench
	places *places
	agents *scriptAgents
	stage  *Handler
	retire *RetireHandler
	ended  []int64 // tasks whose runs were ended

	unending error // what ending them fails with
}

func newWorld(t *testing.T, pipelines ...flow.Pipeline) *world {
	t.Helper()
	if pipelines == nil {
		pipelines = task.Pipelines{flow.Short("default", "coder", `test "$(cat answer)" = 42 || { echo "the answer is wrong"; exit 1; }`)}
	}
	b := newBench(t, pipelines)
	w := &world{bench: b, places: newPlaces(t)}
	w.agents = &scriptAgents{bench: b, results: map[uuid.UUID]AgentResult{}}
	gates := gate.New(gate.Config{Pool: b.pool, Runner: commandRunner{w}, ConsumeTx: consumeTx})
	w.stage = NewHandler(Config{
		Store: b.store, Agents: w.agents, Gates: realGates{gates}, Workspaces: w.places, ConsumeTx: consumeTx,
		PauseTx: func(ctx context.Context, tx pgx.Tx, p Pause) error {
			_, err := tx.Exec(ctx, `insert into pauses (scope, name, reason, actor, code, until) values ('agent', $1, $2, 'orch', $3, $4)`,
				p.Agent, p.Reason, p.Code, p.Until)
			return err
		},
		EndRuns: func(_ context.Context, _ *queue.Lease, id int64) error {
			w.ended = append(w.ended, id)
			return nil
		},
		LivingRuns: func(ctx context.Context, id int64) (n int, err error) {
			err = b.pool.QueryRow(ctx, `select count(*) from runs where task_id = $1 and state <> 'finished'`, id).Scan(&n)
			return n, err
		},
	})
	w.retire = NewRetireHandler(RetireConfig{
		Store: b.store, Queue: b.queue, Remains: w.places, Publisher: w.places,
		EndRuns: func(ctx context.Context, id int64) error {
			w.ended = append(w.ended, id)
			_, err := b.pool.Exec(ctx, `update runs set state = 'finished', finished_at = now(), ended = 'cancelled' where task_id = $1 and state <> 'finished'`, id)
			return errors.Join(err, w.unending)
		},
		ConsumeAllTx: func(ctx context.Context, tx pgx.Tx, id int64) error {
			_, err := tx.Exec(ctx, `update runs set consumed_at = now() where task_id = $1 and consumed_at is null`, id)
			return err
		},
	})
	return w
}

func (w *world) work() error {
	w.t.Helper()
	w.due()
	return w.run(w.stage, w.mustClaim(task.KindStage))
}

func (w *world) unconsumed() int {
	w.t.Helper()
	return w.count(`select count(*) from runs where consumed_at is null`)
}

func consumeTx(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error {
	tag, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp() where id = $1 and consumed_at is null`, runID)
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("the run was consumed before")
	}
	return err
}

// insertRun notes a finished run and pins the job, as the owner of runs does.
func insertRun(ctx context.Context, l *queue.Lease, id uuid.UUID, purpose, key string, t task.Task) error {
	return l.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, state, root_id, host, boot_id, pid_namespace, finished_at, ended)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'finished', $10, 'host', 'boot', 'pid:1', now(), 'exited')`,
			id, t.ID, l.Job().ID, l.Job().Epoch, purpose, key, t.Stage, t.Round, l.Job().Attempt, l.Worker().RootID)
		if err != nil {
			return err
		}
		return l.PinTx(ctx, tx, id)
	})
}

// scriptAgents runs the next script in the workspace; a script that isn't a shell script is an outcome. Re-entrant by
// key, like the real ones.
type scriptAgents struct {
	bench   *bench
	scripts []string
	prompts []string
	started int
	going   []string                   // what agents are told whose session goes on
	change  func(r *AgentResult)       // may say more of a result
	keep    bool                       // sessions go on: workspaces are to stay as they are
	before  func(l *queue.Lease) error // called before anything else
	after   func(l *queue.Lease)       // called when a new run has ended

	mu      sync.Mutex
	results map[uuid.UUID]AgentResult
}

func (a *scriptAgents) Run(ctx context.Context, l *queue.Lease, r AgentRun) (AgentResult, error) {
	if a.before != nil {
		if err := a.before(l); err != nil {
			return AgentResult{}, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var id uuid.UUID
	err := a.bench.pool.QueryRow(ctx, `select id from runs where task_id = $1 and key = $2 and consumed_at is null`, r.Task.ID, r.Key).Scan(&id)
	if err == nil {
		return a.results[id], nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return AgentResult{}, err
	}
	kept, err := r.Prepare(ctx, a.keep)
	if err != nil {
		return AgentResult{}, errors.New("prepare: " + err.Error())
	}
	if a.keep {
		going, err := r.Continue(prompt.Earlier{Outcome: "timeout", Kept: kept})
		if err != nil {
			return AgentResult{}, err
		}
		a.going = append(a.going, string(going))
	}
	script := a.scripts[min(a.started, len(a.scripts)-1)]
	a.started++
	a.prompts = append(a.prompts, string(r.Prompt))
	result := AgentResult{RunID: uuid.New(), Outcome: "ok", Summary: "did \x00 it"}
	if outcome, is := strings.CutPrefix(script, "outcome "); is {
		result.Outcome, result.LogTail, result.Question = outcome, "last words", "left or right?"
	} else if out, err := shell(r.Dir, script); err != nil {
		result.Outcome, result.LogTail = "agent_failed", out
	}
	result.Retry = classOf(result.Outcome)
	if a.change != nil {
		a.change(&result)
	}
	a.results[result.RunID] = result
	if err := insertRun(ctx, l, result.RunID, "agent", r.Key, r.Task); err != nil {
		return AgentResult{}, err
	}
	if a.after != nil {
		a.after(l)
	}
	return result, nil
}

// classOf is what the wiring says of outcomes.
func classOf(outcome string) RetryClass {
	switch outcome {
	case "ok":
		return RetryNone
	case "auth", "not_found":
		return RetryNever
	case "needs_input":
		return RetryAnswer
	case "interrupted", "orphaned", "never_started", "quota":
		return RetryGiven
	default:
		return "" // spent
	}
}

// realGates adapts the registry, as the wiring does.
type realGates struct{ registry *gate.Registry }

func (g realGates) Check(ctx context.Context, l *queue.Lease, ref flow.GateRef, s GateSubject) (GateResult, error) {
	if ref.Name == "pending" {
		return GateResult{Name: ref.Name, Outcome: GatePending, WaitingFor: "ci"}, nil
	}
	r, err := g.registry.Check(ctx, l, gate.Definition{Name: ref.Name, Command: ref.Command, Paths: ref.Paths, Timeout: ref.Timeout}, gate.Subject(s))
	return GateResult{
		Name: r.Name, Outcome: GateOutcome(r.Outcome), Reason: r.Reason, OutputTail: r.OutputTail, ExitCode: r.ExitCode, Duration: r.Duration,
		Reused: r.Reused, RunID: r.RunID, EvidenceID: r.EvidenceID, Until: r.Until, WaitingFor: r.WaitingFor,
	}, err
}

// commandRunner runs a gate's command in a clone of the commit.
type commandRunner struct{ world *world }

func (c commandRunner) RunCommand(ctx context.Context, l *queue.Lease, r gate.CommandRun) (gate.CommandResult, error) {
	t := c.world.get(r.TaskID)
	dir := filepath.Join(c.world.places.root, "checkouts", t.Key, uuid.NewString())
	if out, err := shell("/", "git clone -q '"+c.world.places.Dir(t)+"' '"+dir+"' && git -C '"+dir+"' checkout -q --detach "+r.Commit); err != nil {
		return gate.CommandResult{}, errors.New(out)
	}
	out, err := shell(dir, r.Command)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	}
	result := gate.CommandResult{RunID: uuid.New(), ExitCode: &code, Why: "exited", OutputTail: out}
	return result, insertRun(ctx, l, result.RunID, "gate", r.Key, t)
}

// places keeps workspaces as clones of one repository, which is also where refs are published, and salvages in a mirror.
type places struct {
	root, repo string
	prepared   int
	preparing  func()
	failing    error
	blind      error // what Inspect fails with
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{root: t.TempDir()}
	p.repo = filepath.Join(p.root, "repo")
	out, err := shell(p.root, `git init -q --initial-branch=main repo && cd repo && echo start > README && git add . && git commit -qm start && mkdir ../checkouts && git init -q --bare ../mirror`)
	if err != nil {
		t.Fatal(out)
	}
	return p
}

func (p *places) Dir(t task.Task) string { return filepath.Join(p.root, "ws-"+t.Key) }

func (p *places) Prepare(_ context.Context, t task.Task, keep bool) (Workspace, error) {
	p.prepared++
	if p.preparing != nil {
		p.preparing()
	}
	if p.failing != nil {
		return Workspace{}, p.failing
	}
	if _, err := os.Stat(p.Dir(t)); keep && err == nil {
		return Workspace{Dir: p.Dir(t), Kept: true}, nil
	}
	_, err := shell(p.root, `test -d 'ws-`+t.Key+`' || git clone -q repo 'ws-`+t.Key+`'; cd 'ws-`+t.Key+`' && git reset -q --hard && git clean -qfd && git switch -q -C '`+t.Branch+`'`)
	return Workspace{Dir: p.Dir(t)}, err
}

func (p *places) Inspect(_ context.Context, t task.Task) (Head, error) {
	if p.blind != nil {
		return Head{}, p.blind
	}
	out, err := shell(p.Dir(t), `git rev-parse HEAD 'HEAD^{tree}' origin/main && git status --porcelain | cut -c4-`)
	if err != nil {
		return Head{}, errors.New(out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return Head{Commit: lines[0], Tree: lines[1], Base: lines[2], Dirty: lines[3:]}, nil
}

func (p *places) Publish(_ context.Context, t task.Task, ref string) (string, error) {
	if p.failing != nil {
		return "", p.failing
	}
	from := p.Dir(t)
	if !strings.HasPrefix(ref, "refs/heads/") {
		from = filepath.Join(p.root, "mirror")
	}
	out, err := shell(p.repo, `git fetch -q '`+from+`' '+`+ref+`:`+ref+`'`)
	if err != nil {
		return "", errors.New(out)
	}
	return ref, nil
}

func (p *places) Salvage(_ context.Context, t task.Task, onlyDirty bool) error {
	out, err := shell(p.root, `test -d 'ws-`+t.Key+`' || exit 0; cd 'ws-`+t.Key+`'
		dirty=$(git status --porcelain)
		ahead=$(git rev-list origin/main..HEAD)
		test -n "$dirty" || test -n "$ahead`+map[bool]string{true: `" -a "x" = "y`}[onlyDirty]+`" || exit 0
		git add -A && tree=$(git write-tree) || exit 1
		below='refs/orch/salvage/`+t.Key+`/'
		last=$(git -C ../mirror for-each-ref --sort=-version:refname --count=1 --format='%(tree)' $below)
		test "$last" != "$tree" || exit 0
		n=$(git -C ../mirror for-each-ref $below | wc -l)
		commit=$(git commit-tree -p HEAD -m salvage "$tree") && git push -q ../mirror "$commit:$below$((n + 1))"`)
	if err != nil {
		return errors.New(out)
	}
	return nil
}

func (p *places) Salvages(_ context.Context, t task.Task) ([]Salvaged, error) {
	out, err := shell(filepath.Join(p.root, "mirror"), `git for-each-ref --sort=version:refname --format='%(refname) %(objectname)' 'refs/orch/salvage/`+t.Key+`/'`)
	if err != nil {
		return nil, errors.New(out)
	}
	var list []Salvaged
	for line := range strings.Lines(out) {
		ref, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		list = append(list, Salvaged{Ref: ref, Commit: commit})
	}
	return list, nil
}

func (p *places) Remove(_ context.Context, t task.Task) error {
	return errors.Join(os.RemoveAll(p.Dir(t)), os.RemoveAll(filepath.Join(p.root, "checkouts", t.Key)))
}

// published returns what a file holds under a ref of the repository, or "".
func (p *places) published(ref, file string) string {
	out, err := shell(p.repo, `git show '`+ref+`:`+file+`'`)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

func shell(dir, script string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
