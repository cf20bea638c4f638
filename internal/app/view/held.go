package view

import (
	"orch/api"
	"orch/internal/alert"
	"orch/internal/merge/problem"
	"orch/internal/queue"
	"orch/internal/task"
)

// held says in a task what keeps its job, which may be nil, and whether that is a person's to change. A task that is active all
// the same goes on by itself afterwards: its landing is tried again.
func held(shown api.Task, job *queue.Job) api.Task {
	shown.NeedsYou = shown.State == api.TaskBlocked
	if shown.State != api.TaskActive || job == nil || job.State != queue.StateQueued || job.Phase == nil {
		return shown
	}
	code := *job.Phase
	shown.WaitingFor = &code
	if job.Kind != task.KindMerge || !problem.NeedsPerson(code) {
		return shown
	}
	shown.NeedsYou, shown.ReasonCode, shown.Reason = true, &code, orNil(whatToDo(code))
	if job.ErrorCode != nil && *job.ErrorCode == code { // told by the landing itself, which knows which checkout
		shown.Reason = job.Error
	}
	return shown
}

func whatToDo(code string) string {
	meaning, hint := alert.Meaning(code), alert.Hint(code)
	if meaning == "" || hint == "" {
		return meaning
	}
	return meaning + ": " + hint
}
