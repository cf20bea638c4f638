package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"orch/internal/agent/outcome"
)

// maxFruitless is how many runs in a row may go on with sessions without the model answering anything.
const maxFruitless = 5

// Session says whose session is to be gone on with.
type Session struct {
	TaskID int64
	Stage  string
	Round  int
	// Agent and Preset are those that would go on with it: no other program knows the session.
	Agent, Preset string
}

// Resumable finds the newest run whose session can be gone on with, at its SessionID. It looks at this root only, as
// sessions are files in the agent's HOME.
func (r Reader) Resumable(ctx context.Context, s Session) (Run, bool, error) {
	runs, err := r.many(ctx, `where task_id = @task and stage = @stage and round = @round and agent = @agent and preset = @preset
		and root_id = @root and purpose = 'agent' and state = 'finished' and outcome <> 'never_started'
		order by finished_at desc, id desc limit @limit`, pgx.NamedArgs{
		"task": s.TaskID, "stage": s.Stage, "round": s.Round, "agent": s.Agent, "preset": s.Preset, "root": r.root, "limit": maxFruitless,
	})
	if err != nil {
		return Run{}, false, err
	}
	run, ok := resumable(runs)
	return run, ok, nil
}

// resumable chooses among the newest runs, the newest first.
func resumable(runs []Run) (Run, bool) {
	fruitless := 0
	for _, run := range runs {
		if run.ResumedFrom != nil && (run.Turns == nil || *run.Turns == 0) {
			fruitless++
		}
	}
	if fruitless == maxFruitless {
		return Run{}, false
	}
	for _, run := range runs {
		if run.SessionID != nil && *run.SessionID != "" {
			// After an ok there is nothing left to do: the next round starts afresh.
			return run, !run.SessionLost && run.Outcome != nil && *run.Outcome != outcome.OK
		}
	}
	return Run{}, false
}
