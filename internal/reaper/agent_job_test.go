package reaper_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"orch/internal/agent"
	"orch/internal/agent/ledger"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/queue"
)

// agentJob is a running job with a living run that nobody follows: its handler is stuck, or its worker dead.
type agentJob struct {
	w     *world
	task  int64
	id    int64
	run   uuid.UUID
	work  string
	lease *queue.Lease
	shim  *process.Run
}

func (w *world) agentJob(worker queue.Worker, change ...func(*agent.Program)) *agentJob {
	w.t.Helper()
	j := &agentJob{w: w, task: w.task(), work: w.t.TempDir()}
	j.lease = w.claim(worker)
	j.id = j.lease.Job().ID
	if err := unix.Mkfifo(filepath.Join(j.work, "go"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	j.start(j.lease, change...)
	return j
}

// start has the run started, seen running, and left alone.
func (j *agentJob) start(l *queue.Lease, change ...func(*agent.Program)) {
	w := j.w
	w.t.Helper()
	left := make(chan error, 1)
	go func() {
		_, err := w.runs.Execute(runtest.Bound(w.t), l, j.request(change...))
		left <- err
	}()
	runtest.Eventually(w.t, "the run", func() bool {
		var id *uuid.UUID
		err := w.pool.QueryRow(w.t.Context(), `select (select id from runs where job_id = $1 and state = 'running')`, j.id).Scan(&id)
		if err != nil {
			w.t.Error(err)
			return true
		}
		if id != nil {
			j.run = *id
		}
		return id != nil
	})
	l.BeginStop()
	if err := <-left; !errors.Is(err, queue.ErrStopping) {
		w.t.Fatal(err)
	}
	w.exec(`update jobs set phase = 'following' where id = $1`, j.id) // as a beat writes it
	var err error
	if j.shim, err = process.OpenRun(filepath.Join(w.dir, j.run.String())); err != nil {
		w.t.Fatal(err)
	}
}

func (j *agentJob) request(change ...func(*agent.Program)) agent.Request {
	return agent.Request{
		Purpose: agent.PurposeAgent, Key: "agent:development:1", TaskID: j.task, Stage: "development", Round: 1,
		Start: func(context.Context) (agent.Program, error) {
			p := agent.Program{
				Agent: "coder", Argv: []string{"sh", "-c", waiting}, Dir: j.work, Inherit: []string{"GORACE"}, Plain: []string{"GORACE"},
			}
			for _, c := range change {
				c(&p)
			}
			return p, nil
		},
	}
}

// letGo has the program end by itself.
func (j *agentJob) letGo() {
	j.w.t.Helper()
	word, err := os.OpenFile(filepath.Join(j.work, "go"), os.O_RDWR, 0) // waits for no reader
	if err == nil {
		_, err = word.WriteString("go\n")
		defer word.Close()
	}
	if err != nil {
		j.w.t.Fatal(err)
	}
	runtest.Wait(j.w.t, j.shim)
}

// killShim returns when the run is dead.
func (j *agentJob) killShim() {
	j.w.t.Helper()
	st, err := j.shim.State()
	if err != nil {
		j.w.t.Fatal(err)
	}
	if err := unix.Kill(st.PIDs.Shim.PID, unix.SIGKILL); err != nil {
		j.w.t.Fatal(err)
	}
	runtest.Eventually(j.w.t, "the shim's end", func() bool {
		st, err := j.shim.State()
		return err == nil && st.Status == process.StatusDead
	})
}

// agentIs checks the program itself.
func (j *agentJob) agentIs(want process.Verdict) {
	j.w.t.Helper()
	st, err := j.shim.State()
	if err != nil {
		j.w.t.Fatal(err)
	}
	if v := process.Probe(st.PIDs.Agent); v != want {
		j.w.t.Errorf("the agent is %s, want %s", v, want)
	}
}

// consume does what a handler does with a result: it goes on with the run, uses it, and ends the job.
func (j *agentJob) consume(worker queue.Worker) agent.Result {
	w := j.w
	w.t.Helper()
	l := w.claim(worker)
	res, err := w.runs.Execute(runtest.Bound(w.t), l, j.request())
	if err != nil {
		w.t.Fatal(err)
	}
	err = l.Tx(w.t.Context(), func(tx pgx.Tx) error {
		if err := ledger.ConsumeTx(w.t.Context(), tx, res.RunID); err != nil {
			return err
		}
		return l.CompleteTx(w.t.Context(), tx)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// moved makes the run one of another place.
func (j *agentJob) moved(change func(*process.Identity)) {
	j.w.t.Helper()
	path := filepath.Join(j.w.dir, j.run.String(), "pid.json")
	raw, err := os.ReadFile(path)
	var pids process.PIDs
	if err = errors.Join(err, json.Unmarshal(raw, &pids)); err != nil {
		j.w.t.Fatal(err)
	}
	change(&pids.Shim)
	change(&pids.Agent)
	if raw, err = json.Marshal(pids); err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		j.w.t.Fatal(err)
	}
}

// aged makes the run one that has gone on for longer, by all clocks.
func (j *agentJob) aged(by time.Duration) {
	j.w.t.Helper()
	j.w.exec(`update runs set started_at = started_at - make_interval(secs => $2) where id = $1`, j.run, by.Seconds())
	path := filepath.Join(j.w.dir, j.run.String(), "spec.json")
	raw, err := os.ReadFile(path)
	var spec map[string]json.RawMessage
	var intended int64
	if err = errors.Join(err, json.Unmarshal(raw, &spec)); err == nil {
		err = json.Unmarshal(spec["contact"], &intended)
	}
	if err != nil {
		j.w.t.Fatal(err)
	}
	spec["contact"], err = json.Marshal(intended - int64(by))
	if err == nil {
		raw, err = json.Marshal(spec)
	}
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		j.w.t.Fatal(err)
	}
}
