package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

// Random histories of one task after another: transitions by held jobs, the same ones delivered again or late, cancels,
// failures, retries and lost jobs. After every step the database must agree with a model and with its own events.
func TestStateMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t, flow.Pipeline{Name: "default", MaxRounds: 2, Stages: []flow.Stage{
		{Name: flow.Development, Agent: "a"}, {Name: flow.Review, Agent: "b"}, {Name: flow.Deploy},
	}})
	rapid.Check(t, func(t *rapid.T) {
		outer := b.t
		b.t = t
		defer func() { b.t, b.landing = outer, false }()
		m := &machine{bench: b, want: b.create()}
		m.check(t)
		for range rapid.IntRange(1, 14).Draw(t, "steps") {
			m.step(t)
			m.check(t)
		}
		m.clear(t)
	})
}

type machine struct {
	*bench
	want   Task // what the model says: state, stage, round
	places []At // where the task has been, for late deliveries
}

func (m *machine) step(t *rapid.T) {
	switch rapid.SampledFrom([]string{"work", "work", "work", "late", "cancel", "retry", "job cancel", "revive"}).Draw(t, "what") {
	case "work":
		m.work(t)
	case "late":
		m.late(t)
	case "cancel":
		m.cancel(t)
	case "retry":
		m.retry(t)
	case "job cancel":
		if job := m.job(m.want.ID); job != nil {
			if _, err := m.queue.Cancel(m.ctx, job.ID); err != nil {
				t.Fatal(err)
			}
			m.revive(t)
		}
	case "revive":
		m.revive(t)
	}
}

func (m *machine) work(t *rapid.T) {
	l := m.claim(KindStage)
	if l == nil {
		l = m.claim(KindMerge)
	}
	if (l != nil) != (m.want.State == Active) {
		t.Fatalf("task is %s, claimed: %v", m.want.State, l != nil)
	}
	if l == nil {
		return
	}
	var args JobArgs
	if err := l.Job().Decode(&args); err != nil || args.At() != m.want.At() {
		t.Fatalf("the job is for %+v, the task is at %+v: %v", args, m.want.At(), err)
	}
	at := args.At()
	m.places = append(m.places, at)
	how := rapid.SampledFrom([]string{"advance", "advance", "return", "block", "wait", "land", "fail", "retry", "release", "cancelled meanwhile"}).Draw(t, "how")
	m.end(t, l, at, how)
}

// end ends the held job and says in the model what has to come of it.
func (m *machine) end(t *rapid.T, l *queue.Lease, at At, how string) {
	switch how {
	case "advance", "return", "block", "wait", "land":
		transition := m.transition(how, at)
		if m.move(l, transition).Superseded {
			t.Fatalf("%s was superseded", how)
		}
		m.foresee(how)
		if rapid.Bool().Draw(t, "twice") && !m.inTx(transition).Superseded {
			t.Fatalf("%s was done twice", how)
		}
	case "cancelled meanwhile":
		if _, err := m.store.Cancel(m.ctx, m.want.Key, "me"); err != nil {
			t.Fatal(err)
		}
		m.want.State = Cancelled
		if !m.move(l, m.transition("advance", at)).Superseded {
			t.Fatal("a cancelled task was advanced")
		}
	default:
		err := l.Tx(m.ctx, func(tx pgx.Tx) (err error) {
			switch how {
			case "fail":
				err = l.FailTx(m.ctx, tx, queue.Failure{Code: "failed", Message: "failed"})
			case "retry":
				var state queue.State
				if state, err = l.RetryTx(m.ctx, tx, queue.Failure{Code: "again"}); state == queue.StateFailed {
					how = "fail"
				}
			case "release":
				err = l.ReleaseTx(m.ctx, tx, queue.Release{})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if how == "fail" {
			m.want.State = Blocked
			m.want.ReasonCode = "failed"
		}
		m.due()
	}
}

func (m *machine) transition(how string, at At) func(pgx.Tx) (Moved, error) {
	switch how {
	case "return":
		return m.sendBack(at, Return{Gate: "command", Reason: "red"})
	case "block":
		return m.block(at, Block{Code: "stuck"})
	case "wait":
		return m.wait(at, Wait{For: "ci"})
	case "land":
		return m.land(at, Landing{Commit: "abc"})
	default:
		return m.advance(at)
	}
}

// foresee is the model of a transition of an active task.
func (m *machine) foresee(how string) {
	switch how {
	case "advance":
		next := map[string]string{flow.Development: flow.Review, flow.Review: flow.Deploy, flow.Deploy: ""}[m.want.Stage]
		if next == "" {
			m.want.State = Done
		} else {
			m.want.Stage = next
		}
	case "return":
		if m.want.Round >= 2 {
			m.want.State, m.want.ReasonCode = Blocked, CodeRoundsExhausted
		} else {
			m.want.Stage, m.want.Round = flow.Development, m.want.Round+1
		}
	case "block":
		m.want.State, m.want.ReasonCode = Blocked, "stuck"
	case "wait":
		m.want.State = Waiting
	case "land":
		m.want.State = Done
	}
}

// late delivers a transition from a place where the task has been, or never was.
func (m *machine) late(t *rapid.T) {
	at := At{TaskID: m.want.ID, Stage: rapid.SampledFrom([]string{flow.Development, flow.Review, flow.Deploy}).Draw(t, "stage"), Round: rapid.IntRange(1, 3).Draw(t, "round")}
	if len(m.places) > 0 && rapid.Bool().Draw(t, "been there") {
		at = rapid.SampledFrom(m.places).Draw(t, "place")
	}
	here := at == m.want.At()
	for _, how := range []string{"advance", "return", "block", "wait", "land"} {
		// At the task's own place it isn't late: whoever has the place may move an open task like this.
		open := map[string][]State{"block": {Active, Waiting}, "land": {Active, Waiting, Blocked}}[how]
		if open == nil {
			open = []State{Active}
		}
		if here && slices.Contains(open, m.want.State) {
			continue
		}
		if !m.inTx(m.transition(how, at)).Superseded {
			t.Fatalf("%s from %+v moved a task that is %s at %+v", how, at, m.want.State, m.want.At())
		}
	}
}

func (m *machine) cancel(t *rapid.T) {
	m.landing = rapid.Bool().Draw(t, "landing")
	_, err := m.store.Cancel(m.ctx, m.want.Key, "me")
	switch {
	case m.want.State.Ended():
		if !errors.Is(err, ErrEnded) {
			t.Fatal(err)
		}
	case m.landing:
		if !errors.Is(err, ErrLandingStarted) {
			t.Fatal(err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		m.want.State = Cancelled
	}
	m.landing = false
}

func (m *machine) retry(t *rapid.T) {
	_, err := m.store.Retry(m.ctx, m.want.Key, "me", "")
	if m.want.State != Blocked {
		if !errors.Is(err, ErrNotBlocked) {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.want.State = Active
	if m.want.ReasonCode == CodeRoundsExhausted {
		m.want.Stage, m.want.Round = flow.Development, m.want.Round+1
	}
}

func (m *machine) revive(t *rapid.T) {
	t.Helper()
	m.bench.revive()
}

// check compares the database with the model, and the events with the row.
func (m *machine) check(t *rapid.T) {
	row := m.get(m.want.ID)
	if row.State != m.want.State || row.At() != m.want.At() {
		t.Fatalf("task is %s at %+v, expected %s at %+v", row.State, row.At(), m.want.State, m.want.At())
	}
	jobs := m.count(`select count(*) from jobs where task_id = $1 and kind <> 'retire' and state in ('queued', 'running')`, row.ID)
	if want := map[bool]int{true: 1}[row.State == Active]; jobs != want {
		t.Fatalf("task is %s and has %d live jobs", row.State, jobs)
	}
	if job := m.job(row.ID); job != nil {
		if want := map[bool]string{true: KindMerge, false: KindStage}[row.Stage == flow.Deploy]; job.Kind != want {
			t.Fatalf("job %s at stage %s", job.Kind, row.Stage)
		}
	}
	if gone := row.State.Ended() || row.State == Blocked; gone && m.retires(row.ID) != 1 {
		t.Fatalf("task is %s and has %d retire jobs", row.State, m.retires(row.ID))
	}
	if told := m.told(t, row.ID); told != fmt.Sprint(row.State, row.At()) {
		t.Fatalf("events tell %s, the row is %s", told, fmt.Sprint(row.State, row.At()))
	}
	events, err := m.store.Events(m.ctx, row.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if final := e.Kind == EventLanded || e.Kind == EventDone || e.Kind == EventCancelled; final && i != len(events)-1 {
			t.Fatalf("%s is followed by %s", e.Kind, events[i+1].Kind)
		}
	}
}

// told is the state that the events of a task add up to.
func (m *machine) told(t *rapid.T, id int64) string {
	events, err := m.store.Events(m.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	state, at := Active, At{TaskID: id, Stage: flow.Development, Round: 1}
	for _, e := range events {
		var data struct {
			To    string `json:"to"`
			Round int    `json:"round"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case EventAdvanced:
			at.Stage = data.To
		case EventReturned:
			state, at.Stage, at.Round = Active, data.To, data.Round
		case EventRetried:
			state = Active
		case EventWaiting:
			state = Waiting
		case EventBlocked:
			state = Blocked
		case EventLanded, EventDone:
			state = Done
		case EventCancelled:
			state = Cancelled
		default: // the others move nothing
		}
	}
	return fmt.Sprint(state, at)
}

// clear takes the task out of the way of the next history.
func (m *machine) clear(t *rapid.T) {
	if !m.want.State.Ended() {
		if _, err := m.store.Cancel(m.ctx, m.want.Key, "me"); err != nil {
			t.Fatal(err)
		}
	}
}
