package words

import (
	"testing"

	"orch/api"
)

func TestStateWords(t *testing.T) {
	t.Parallel()
	person, ci, commit, nothing := PersonLands, "ci_checks", "abc", "nothing_to_land"
	dirty, lease, agent, repo := "checkout_dirty", "merge_lease", "agent_paused:coder", "repo_paused:app"
	for want, task := range map[string]api.Task{
		"running":                    {State: api.TaskActive, Round: 1, MaxRounds: 3},
		"running, try 2 of 3":        {State: api.TaskActive, Round: 2, MaxRounds: 3},
		"waiting for you to land it": {State: api.TaskWaiting, WaitingFor: &person},
		"waiting for ci checks":      {State: api.TaskWaiting, WaitingFor: &ci},
		"needs you":                  {State: api.TaskBlocked, NeedsYou: true},

		"needs you: checkout dirty":              {State: api.TaskActive, Round: 1, WaitingFor: &dirty, NeedsYou: true},
		"needs you: checkout dirty, try 2 of 3":  {State: api.TaskActive, Round: 2, MaxRounds: 3, WaitingFor: &dirty, NeedsYou: true},
		"waiting for its turn to land":           {State: api.TaskActive, Round: 1, WaitingFor: &lease},
		"waiting for agent coder":                {State: api.TaskActive, Round: 1, WaitingFor: &agent},
		"waiting for repository app, try 2 of 3": {State: api.TaskActive, Round: 2, MaxRounds: 3, WaitingFor: &repo},

		"landed":          {State: api.TaskDone, LandedCommit: &commit},
		"done":            {State: api.TaskDone},
		"nothing to land": {State: api.TaskDone, ReasonCode: &nothing},
		"cancelled":       {State: api.TaskCancelled},
	} {
		if got := State(task); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
