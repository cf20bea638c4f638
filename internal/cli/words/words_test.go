package words

import (
	"testing"

	"orch/api"
)

func TestStateWords(t *testing.T) {
	t.Parallel()
	person, ci, commit := PersonLands, "ci_checks", "abc"
	for want, task := range map[string]api.Task{
		"running":                    {State: api.TaskActive, Round: 1, MaxRounds: 3},
		"running, try 2 of 3":        {State: api.TaskActive, Round: 2, MaxRounds: 3},
		"waiting for you to land it": {State: api.TaskWaiting, WaitingFor: &person},
		"waiting for ci checks":      {State: api.TaskWaiting, WaitingFor: &ci},
		"needs you":                  {State: api.TaskBlocked},
		"landed":                     {State: api.TaskDone, LandedCommit: &commit},
		"done":                       {State: api.TaskDone},
		"cancelled":                  {State: api.TaskCancelled},
	} {
		if got := State(task); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
