package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/transcript"
)

// Lines that the program of preset claude prints.
const (
	claudeInit   = `{"type":"system","subtype":"init","session_id":"session-1","model":"m"}`
	claudeAnswer = `{"type":"assistant","message":{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}],"usage":{"input_tokens":5,"output_tokens":7}},"parent_tool_use_id":null,"session_id":"session-1"}`
)

// claudeEnd is how it ends, with what its session has cost up to then.
func claudeEnd(cost float64, input, output int) string {
	return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"done","session_id":"session-1",`+
		`"total_cost_usd":%g,"modelUsage":{"m":{"inputTokens":%d,"outputTokens":%d,"costUSD":%g}},"permission_denials":[]}`, cost, input, output, cost)
}

// says is a script that prints lines.
func says(lines ...string) string {
	return "cat <<'EOF'\n" + strings.Join(lines, "\n") + "\nEOF\n"
}

func (b *bench) claude(script string) asked {
	req := b.request(script)
	req.Preset, req.Format = "claude", transcript.Claude
	return req
}

func quickly(c *Config) { c.ListenEvery = 10 * time.Millisecond }

func TestSessionIsNotedWhileTheAgentRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, quickly)
	l := b.claim(t)
	answers := b.executing(t, l, b.claude(says(claudeInit, claudeAnswer)+waiting))
	b.running(t)
	eventually(t, "its session and what it does", func() bool {
		run := b.list(t)[0]
		if run.State != StateRunning {
			t.Fatalf("%+v", run)
		}
		if _, err := b.queue.Beat(t.Context(), b.worker, []*queue.Lease{l}); err != nil {
			t.Fatal(err)
		}
		job, err := b.queue.Get(t.Context(), l.Job().ID)
		if err != nil {
			t.Fatal(err)
		}
		var shown progress
		_ = json.Unmarshal(job.Progress, &shown) // none yet
		return run.SessionID != nil && *run.SessionID == "session-1" && shown.Tool == "Bash"
	})
	b.letGo(t)
	if got := <-answers; got.err != nil || got.SessionID != "session-1" || got.Agent != "coder" || got.Preset != "claude" {
		t.Fatalf("%+v", got)
	}
}

func TestSessionSurvivesKilledOrch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.claude(says(claudeInit, claudeAnswer)+waiting))
	run := b.running(t)
	l.BeginStop()
	<-answers
	b.exec(t, `update runs set session_id = null`) // as if nobody had come to it
	b.letGo(t)
	eventually(t, "its end", func() bool {
		if err := b.runs.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := b.runs.Get(t.Context(), run.ID)
		return err == nil && now.State == StateFinished
	})
	if now, err := b.runs.Get(t.Context(), run.ID); err != nil || now.SessionID == nil || *now.SessionID != "session-1" || now.Preset != "claude" {
		t.Fatalf("%+v, %v", now, err)
	}
}

func TestWhatAKilledShimHeardIsReadFromTheLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	answers := b.executing(t, l, b.claude(says(claudeInit, claudeAnswer)+waiting))
	run := b.running(t)
	eventually(t, "its output", func() bool {
		log, err := b.runs.OpenLog(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		tail, err := log.Tail(1 << 20)
		return err == nil && strings.Contains(string(tail), "first\n")
	})
	_ = os.Remove(filepath.Join(b.dir, run.ID.String(), "said.json")) // it wasn't there yet, maybe
	b.killShim(t, run.ID)
	if got := <-answers; got.err != nil || got.Outcome != outcome.Crashed || got.SessionID != "session-1" {
		t.Fatalf("%+v", got)
	}
}

func TestGateRunsAreJudgedByTheirCodeAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request(`echo '{"orch":{"status":"needs_input","question":"which?","cost_usd":5,"summary":"mine"}}'; exit 0`)
	req.Purpose, req.Agent = PurposeGate, ""
	res := b.execute(t, b.claim(t), req)
	if res.Outcome != outcome.OK || res.Question != "" || res.Summary != "" || res.Usage != (Usage{}) {
		t.Fatalf("%+v", res)
	}
	var days int
	if err := b.pool.QueryRow(t.Context(), `select count(*) from agent_days`).Scan(&days); err != nil || days != 0 {
		t.Fatalf("%d days, %v", days, err)
	}
}

// ended executes a run to its end and uses its result.
func (b *bench) ended(t *testing.T, l *queue.Lease, req asked) Result {
	t.Helper()
	res := b.execute(t, l, req)
	if err := b.consume(t, l, res.RunID); err != nil {
		t.Fatal(err)
	}
	return res
}

// session is whose sessions these tests go on with.
func (b *bench) session() Session {
	return Session{TaskID: b.task, Stage: "development", Round: 1, Agent: "coder", Preset: "claude"}
}

func (b *bench) resumable(t *testing.T) (Run, bool) {
	t.Helper()
	run, ok, err := b.runs.Resumable(t.Context(), b.session())
	if err != nil {
		t.Fatal(err)
	}
	return run, ok
}

func TestUsageOfAResumedSessionIsTheDifference(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	if run, ok := b.resumable(t); ok {
		t.Fatalf("before any run: %+v", run)
	}
	first := b.ended(t, l, b.claude(says(claudeInit, claudeAnswer, claudeEnd(1.5, 100, 10))+"exit 3"))
	if first.Usage.CostUSD == nil || *first.Usage.CostUSD != 1.5 || first.Usage.Tokens() != 110 || first.Usage.Turns == 0 {
		t.Fatalf("%+v", first.Usage)
	}
	b.exec(t, `update runs set outcome = 'agent_failed'`)
	before, ok := b.resumable(t)
	if !ok || before.ID != first.RunID || *before.SessionID != "session-1" {
		t.Fatalf("%+v, %v", before, ok)
	}
	again := b.claude(says(claudeInit, claudeAnswer, claudeEnd(2.0, 150, 30)))
	again.ResumedFrom = &before.ID
	second := b.ended(t, l, again)
	if second.Usage.CostUSD == nil || *second.Usage.CostUSD != 0.5 || second.Usage.InputTokens != 50 || second.Usage.OutputTokens != 20 ||
		second.ResumedFrom == nil || *second.ResumedFrom != before.ID {
		t.Fatalf("%+v", second)
	}
	var runs, unpriced int
	var cost float64
	var tokens int64
	err := b.pool.QueryRow(t.Context(), `select runs, unpriced, cost_usd::float8, input_tokens + output_tokens from agent_days where agent = 'coder'`).
		Scan(&runs, &unpriced, &cost, &tokens)
	if err != nil || runs != 2 || unpriced != 0 || cost != 2 || tokens != 180 {
		t.Fatalf("%d runs, %d unpriced, %v USD, %d tokens: %v", runs, unpriced, cost, tokens, err)
	}
	if _, ok := b.resumable(t); ok {
		t.Fatal("a run that ended well is gone on with")
	}
}

func TestLostSessionStartsAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	b.ended(t, l, b.claude(says(claudeInit, claudeAnswer)+"exit 3"))
	before, ok := b.resumable(t)
	if !ok {
		t.Fatal("not resumable")
	}
	again := b.claude(`echo 'No conversation found with session ID: session-1'; exit 1`)
	again.ResumedFrom = &before.ID
	if res := b.ended(t, l, again); res.Outcome.Class() != outcome.Spent {
		t.Fatalf("%+v", res)
	}
	if run, ok := b.resumable(t); ok {
		t.Fatalf("still resumable: %+v", run)
	}
	if run, err := b.runs.Get(t.Context(), before.ID); err != nil || !run.SessionLost {
		t.Fatalf("%+v, %v", run, err)
	}
}

func TestSessionOfAnotherPlaceIsNotGoneOnWith(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ended(t, b.claim(t), b.claude(says(claudeInit, claudeAnswer)+"exit 3"))
	if _, ok := b.resumable(t); !ok {
		t.Fatal("not resumable")
	}
	for name, change := range map[string]func(*Session){
		"round": func(s *Session) { s.Round = 2 }, "stage": func(s *Session) { s.Stage = "review" },
		"agent": func(s *Session) { s.Agent = "spare" }, "preset": func(s *Session) { s.Preset = "codex" },
	} {
		s := b.session()
		change(&s)
		if run, ok, err := b.runs.Resumable(t.Context(), s); ok || err != nil {
			t.Errorf("of another %s: %+v, %v", name, run, err)
		}
	}
	b.exec(t, `update runs set root_id = $1`, b.otherRoot(t))
	if run, ok := b.resumable(t); ok {
		t.Errorf("of another root: %+v", run)
	}
}

func (b *bench) otherRoot(t *testing.T) uuid.UUID {
	t.Helper()
	id := uuid.New()
	b.exec(t, `insert into roots (id, host, path) values ($1, 'there', '/x')`, id)
	return id
}

func TestEndIsCountedOnceInTheDay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := b.execute(t, b.claim(t), b.request(`exit 1`))
	b.exec(t, `update runs set state = 'running', finished_at = null, ended = null`)
	b.exec(t, `delete from agent_days`)
	noted := make(chan error, 2)
	for range cap(noted) {
		go func() { noted <- b.runs.ledger.NoteEnd(t.Context(), res.RunID, res.End) }()
	}
	if err := errors.Join(<-noted, <-noted); err != nil {
		t.Fatal(err)
	}
	var runs, failed, unpriced int
	err := b.pool.QueryRow(t.Context(), `select runs, failed, unpriced from agent_days where agent = 'coder' and day = (now() at time zone 'UTC')::date`).
		Scan(&runs, &failed, &unpriced)
	if err != nil || runs != 1 || failed != 1 || unpriced != 1 {
		t.Fatalf("%d runs, %d failed, %d unpriced: %v", runs, failed, unpriced, err)
	}
}

func TestInARow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := func(o outcome.Outcome, want int) {
		t.Helper()
		if n, err := b.runs.InARow(t.Context(), "coder", o); err != nil || n != want {
			t.Errorf("%d of %s, want %d: %v", n, o, want, err)
		}
	}
	want(outcome.Quota, 0)
	for i, o := range []outcome.Outcome{outcome.OK, outcome.Quota, outcome.NeverStarted, outcome.Quota} {
		id := b.insertIntent(t, 0)
		b.exec(t, `update runs set key = $2, agent = 'coder', state = 'finished', ended = 'exited', outcome = $3,
			created_at = now() + make_interval(secs => $4), finished_at = now() + make_interval(secs => $4 + 1) where id = $1`, id, strconv.Itoa(i), o, 2*i)
	}
	want(outcome.Quota, 2)
	want(outcome.OK, 0)
	for i := range 4 { // all at once: the limit is met once
		id := b.insertIntent(t, 0)
		b.exec(t, `update runs set key = $2, agent = 'coder', state = 'finished', ended = 'exited', outcome = 'quota',
			created_at = now() + interval '20 s', finished_at = now() + make_interval(secs => $3) where id = $1`, id, "at once "+strconv.Itoa(i), 21+i)
	}
	want(outcome.Quota, 3)
}

func TestRunsThatAreGivenBackDontCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	all := []outcome.Outcome{
		outcome.OK, outcome.AgentFailed, outcome.SetupFailed, outcome.Timeout, outcome.Stalled, outcome.Auth, outcome.Quota, outcome.RateLimited,
		outcome.NeedsInput, outcome.Killed, outcome.Crashed, outcome.NotFound, outcome.Orphaned, outcome.Interrupted, outcome.Cancelled, outcome.NeverStarted,
	}
	want := 1 // one that lives
	b.insertIntent(t, 0)
	b.exec(t, `update runs set key = 'living'`)
	for _, o := range all {
		b.exec(t, `update runs set key = $2, state = 'finished', finished_at = now(), ended = 'exited', outcome = $2 where id = $1`, b.insertIntent(t, 0), o)
		if o.Class() != outcome.Given {
			want++
		}
	}
	if n, err := b.runs.CountAgentRuns(t.Context(), b.task); err != nil || n != want {
		t.Errorf("%d runs count, want %d: %v", n, want, err)
	}
}

func TestEndOfAGivenUpRunComesTooLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := b.execute(t, b.claim(t), b.request(`true`))
	b.exec(t, `update runs set ended = $1, outcome = 'orphaned'`, process.WhyHostDead)
	if err := b.runs.ledger.NoteEnd(t.Context(), res.RunID, res.End); err != nil {
		t.Fatal(err)
	}
	if run, err := b.runs.Get(t.Context(), res.RunID); err != nil || *run.Outcome != outcome.Orphaned {
		t.Fatalf("%+v, %v", run, err)
	}
}
